//! [`DeadlineThread`]: a thread that waits for a deadline, and acts when it is due. Moving the deadline later needs no
//! system call: the thread notices it when its old alarm goes off.

use crate::Subject;
use std::{
    fmt::{self, Write},
    io,
    mem::MaybeUninit,
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};
use vvm_clock::{Alarm, DisplayDuration, Instant, SystemClock};

#[derive(Debug)]
pub(super) struct DeadlineThread {
    shared: Arc<ThreadState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct ThreadState {
    alarm: Alarm,
    state: Mutex<AlarmState>,
}

#[derive(Debug, Default)]
struct AlarmState {
    deadline: Option<(Instant, Subject)>,
    /// When the alarm goes off. Never later than the deadline.
    alarm_at: Option<Instant>,
    ended: bool,
}

impl DeadlineThread {
    /// Starts the thread. When the deadline is due, it calls `act` once and ends. No deadline can be set while `act`
    /// runs. Fails if the process is out of threads or file descriptors.
    pub(super) fn start(name: &str, act: impl Fn(Instant, &Subject) + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(ThreadState { alarm: Alarm::new()?, state: Mutex::default() });
        let thread = thread::Builder::new().name(name.into()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                block_all_signals();
                shared.wait_and_act(act);
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Calls `set_other_layer`, and replaces the deadline if that succeeds. Holds the lock, so the thread waits.
    pub(super) fn set(
        &self,
        deadline: Option<(Instant, &Subject)>,
        set_other_layer: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.shared.state();
        set_other_layer()?;
        state.deadline = deadline.map(|(at, subject)| (at, subject.clone()));
        if let Some((at, _)) = deadline
            && state.alarm_at.is_none_or(|alarm_at| at < alarm_at)
        {
            state.alarm_at = Some(at);
            self.shared.alarm.set(at);
        }
        Ok(())
    }
}

impl ThreadState {
    fn wait_and_act(&self, act: impl Fn(Instant, &Subject)) {
        loop {
            self.alarm.wait();
            let mut state = self.state();
            if state.ended {
                return;
            }
            // The lock is held while `act` runs, so that no renewal moves the deadline after this comparison.
            if let Some((at, subject)) = &state.deadline
                && *at <= SystemClock::read()
            {
                return act(*at, subject);
            }
            state.alarm_at = state.deadline.as_ref().map(|(at, _)| *at);
            if let Some(at) = state.alarm_at {
                self.alarm.set(at);
            }
        }
    }

    /// Ignores poison, because every step leaves the state consistent.
    fn state(&self) -> MutexGuard<'_, AlarmState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DeadlineThread {
    /// Ends the thread only if there is no deadline (I4).
    fn drop(&mut self) {
        {
            let mut state = self.shared.state();
            if state.deadline.is_some() {
                return;
            }
            state.ended = true;
            self.shared.alarm.set(Instant::ORIGIN);
        }
        if let Some(thread) = self.thread.take() {
            // Without a deadline it never calls `act`, so it does not panic.
            drop(thread.join());
        }
    }
}

/// Blocks all signals for the calling thread, except SIGKILL and SIGSTOP, which can't be blocked. No signal handler of
/// the program then runs on it, and writing to a closed standard error is an error instead of SIGPIPE.
fn block_all_signals() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set behind the pointer, and pthread_sigmask only reads it. A null
    // pointer means that the old mask is not returned.
    let outcome = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), ptr::null_mut())
    };
    // The only documented error is an invalid first argument (pthread_sigmask(3)).
    debug_assert_eq!(outcome, 0);
}

/// Writes the message of the thread before it ends the process to standard error, and ignores errors. A thread that
/// hangs may hold the lock of the allocator, a logger or the library's standard error. So the message is made on the
/// stack, and written with one system call. If that blocks, the second layer acts.
pub(super) fn write_last_words(deadline: Instant, subject: &Subject) {
    let mut line = MessageBuffer::default();
    let late = DisplayDuration(SystemClock::read().since(deadline));
    // A line that is too long is truncated.
    let _ = write!(
        line,
        "deadman[{}]: ending this process {late} after its kill deadline: epoch {} was neither renewed nor \
         handed back in time (storage out of reach or too slow, runtime stalled, or work that did not stop). \
         Leadership \"{}\" of \"{}\"",
        std::process::id(),
        subject.epoch,
        subject.key.escape_debug(),
        subject.holder.escape_debug(),
    );
    let _ = rustix::io::write(rustix::stdio::stderr(), line.ended());
}

/// A line of limited length, far below the limit of an atomic write to a pipe (4,096 bytes on Linux), so that
/// processes with one standard error don't mix their messages.
struct MessageBuffer {
    bytes: [u8; Self::LIMIT],
    length: usize,
}

impl MessageBuffer {
    const LIMIT: usize = 1024;

    fn ended(&mut self) -> &[u8] {
        self.bytes[self.length] = b'\n';
        &self.bytes[..=self.length]
    }
}

impl Default for MessageBuffer {
    fn default() -> Self {
        Self { bytes: [0; Self::LIMIT], length: 0 }
    }
}

impl Write for MessageBuffer {
    /// Appends the part that fits, and leaves a byte for the end of the line.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = Self::LIMIT - 1 - self.length;
        let taken = &text.as_bytes()[..text.floor_char_boundary(room)];
        self.bytes[self.length..][..taken.len()].copy_from_slice(taken);
        self.length += taken.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, time::Duration};

    const HOUR: Duration = Duration::from_secs(3600);

    const AT_MOST: Duration = Duration::from_secs(5);

    fn subject() -> Subject {
        Subject { key: "payroll".into(), holder: "here".into(), epoch: 1 }
    }

    fn from_now(span: Duration) -> Instant {
        SystemClock::read().after(span)
    }

    fn thread() -> (DeadlineThread, mpsc::Receiver<(Instant, Instant)>) {
        let (acts, acted) = mpsc::channel();
        let act = move |at, _: &Subject| acts.send((at, SystemClock::read())).unwrap();
        (DeadlineThread::start("deadline", act).unwrap(), acted)
    }

    fn set(thread: &DeadlineThread, deadline: Option<Instant>) {
        let subject = subject();
        thread.set(deadline.map(|at| (at, &subject)), || Ok(())).unwrap();
    }

    #[test]
    fn earlier_deadline_sets_the_alarm_and_a_later_one_does_not() {
        let (thread, acted) = thread();
        let (early, late) = (from_now(Duration::from_millis(30)), from_now(Duration::from_millis(60)));
        set(&thread, Some(from_now(HOUR)));
        set(&thread, Some(early));
        set(&thread, Some(late));
        let alarm_at = thread.shared.state().alarm_at;
        assert!(alarm_at == Some(early) || SystemClock::read() >= early);
        let (at, when) = acted.recv_timeout(AT_MOST).unwrap();
        assert_eq!(at, late);
        assert!(when >= late);
    }

    #[test]
    fn failure_of_the_other_layer_keeps_the_deadline() {
        let (thread, acted) = thread();
        let deadline = from_now(Duration::from_millis(20));
        set(&thread, Some(deadline));
        let subject = subject();
        let refused = thread.set(Some((from_now(HOUR), &subject)), || Err(io::Error::other("refused")));
        assert!(refused.is_err());
        assert_eq!(acted.recv_timeout(AT_MOST).unwrap().0, deadline);
    }

    #[test]
    fn no_deadline_can_be_set_while_the_thread_acts() {
        let (in_act, act_began) = mpsc::channel();
        let (may_end, end) = mpsc::channel::<()>();
        let act = move |_, _: &Subject| {
            in_act.send(()).unwrap();
            end.recv().unwrap();
        };
        let thread = DeadlineThread::start("deadline", act).unwrap();
        set(&thread, Some(from_now(Duration::from_millis(5))));
        act_began.recv_timeout(AT_MOST).unwrap();
        assert!(thread.shared.state.try_lock().is_err());
        may_end.send(()).unwrap();
        set(&thread, None);
    }

    #[test]
    fn deadline_thread_has_every_signal_blocked_that_can_be() {
        let (report, reported) = mpsc::channel();
        let act = move |_, _: &Subject| {
            report.send(std::fs::read_to_string("/proc/thread-self/status").unwrap()).unwrap();
        };
        let thread = DeadlineThread::start("deadline", act).unwrap();
        set(&thread, Some(SystemClock::read()));
        let status = reported.recv().unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        let blocked = u64::from_str_radix(mask.trim(), 16).unwrap();
        for signal in 1..=libc::SIGRTMAX() {
            // The C library reserves 32 and 33.
            let exempt = [libc::SIGKILL, libc::SIGSTOP, 32, 33].contains(&signal);
            assert!(exempt || blocked & (1 << (signal - 1)) != 0, "signal {signal} is not blocked");
        }
    }

    #[test]
    fn long_line_is_truncated_between_characters() {
        let mut line = MessageBuffer::default();
        line.write_str("a").unwrap();
        for _ in 0..MessageBuffer::LIMIT {
            line.write_str("é").unwrap();
        }
        line.write_str("b").unwrap();
        let text = std::str::from_utf8(line.ended()).unwrap();
        assert_eq!(text.len(), MessageBuffer::LIMIT);
        assert!(text.ends_with("é\n"));
    }
}
