//! Signals, kept away from the threads that end the process.

use std::{mem::MaybeUninit, ptr};

/// Blocks every signal for the calling thread: no handler of the program's runs on it, and a standard error
/// that nobody reads is an error for it instead of SIGPIPE. (SIGKILL and SIGSTOP can't be blocked, and are
/// not.)
pub(super) fn block_all() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset fills the set that it is given a pointer to, and pthread_sigmask only reads it; a
    // null pointer stands for "the old mask is of no interest".
    let outcome = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), ptr::null_mut())
    };
    // The one documented error is a first argument that is none of three constants (pthread_sigmask(3)).
    debug_assert_eq!(outcome, 0);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::super::deadline_thread::DeadlineThread;
    use crate::Subject;
    use std::sync::mpsc;
    use vvm_clock::SystemClock;

    #[test]
    fn deadline_thread_has_every_signal_blocked_that_can_be() {
        let (report, reported) = mpsc::channel();
        let act = move |_, _: &Subject| {
            report.send(std::fs::read_to_string("/proc/thread-self/status").unwrap()).unwrap();
        };
        let thread = DeadlineThread::start("deadline", act).unwrap();
        let subject = Subject { key: "payroll".into(), holder: "here".into(), epoch: 1 };
        thread.set(Some((SystemClock::read(), &subject)), || Ok(())).unwrap();
        let status = reported.recv().unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        let blocked = u64::from_str_radix(mask.trim(), 16).unwrap();
        for signal in 1..=libc::SIGRTMAX() {
            // The C library keeps 32 and 33 for itself.
            let exempt = [libc::SIGKILL, libc::SIGSTOP, 32, 33].contains(&signal);
            assert!(exempt || blocked & (1 << (signal - 1)) != 0, "signal {signal} is not blocked");
        }
    }
}
