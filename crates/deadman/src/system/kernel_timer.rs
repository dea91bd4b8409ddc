//! [`KernelTimer`]: a POSIX timer on the clock that counts suspend, whose signal is SIGKILL. It needs no thread,
//! processor time or memory of the process. Measured: idle, stopped, spinning, with all signals blocked, and in a
//! frozen cgroup, the process is dead within 1 ms of the deadline.

use std::{io, mem::MaybeUninit, ptr};
use vvm_clock::Instant;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A timer that kills this process: the second layer of [`SystemTrigger`](super::SystemTrigger), and enough for a
/// process of one thread. A forked child does not inherit the timer and must not use this value. `exec` deletes it.
///
/// # Dropping
/// An armed timer remains, and kills (I4). An unarmed one is deleted (I9).
#[derive(Debug)]
pub struct KernelTimer(libc::timer_t);

// SAFETY: the value identifies a timer of this process, and is not changed until the timer is deleted. Every
// thread of the process may use it.
unsafe impl Send for KernelTimer {}

// SAFETY: as above. Several threads may call timer_settime and timer_gettime at once.
unsafe impl Sync for KernelTimer {}

impl KernelTimer {
    /// Returns a timer that is not set.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] in process 1 of a PID namespace, which ignores its own SIGKILL timer
    /// (measured). Otherwise the kernel's error: too many timers (they count as pending
    /// signals, `ulimit -i`), or a sandbox that forbids them.
    pub fn new() -> io::Result<Self> {
        if is_init() {
            let why = "process 1 of a PID namespace ignores its own kill timer: start it under an init";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        // SAFETY: a C struct of numbers and pointers, for which zero is a valid value.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGKILL;
        let mut timer = ptr::null_mut();
        // SAFETY: both pointers point to live values of the types that the call reads and writes.
        check(unsafe { libc::timer_create(libc::CLOCK_BOOTTIME, &mut event, &mut timer) })?;
        Ok(Self(timer))
    }

    /// Has the kernel kill this process at an instant, by one system call; `None` means never. A past one kills at
    /// once. The kernel documents no error for an existing timer (timer_settime(2)); one would keep the former setting.
    pub fn set(&self, at: Option<Instant>) -> io::Result<()> {
        // Zero would disarm. The first nanosecond after boot is in the past, too.
        let nanos = at.map_or(0, |at| at.as_nanos().max(1));
        let setting = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                // With 32 bits, a far deadline becomes an earlier one, never a later one.
                tv_sec: (nanos / NANOS_PER_SECOND).try_into().unwrap_or(libc::time_t::MAX),
                tv_nsec: (nanos % NANOS_PER_SECOND) as libc::c_long,
            },
        };
        // SAFETY: the timer exists as long as this value. The call only reads the live value behind the
        // pointer. A null pointer means that the old setting is not returned.
        check(unsafe { libc::timer_settime(self.0, libc::TIMER_ABSTIME, &setting, ptr::null_mut()) })
    }

    fn is_armed(&self) -> bool {
        let mut setting = MaybeUninit::<libc::itimerspec>::zeroed();
        // SAFETY: the timer exists as long as this value. The call writes the live value behind the pointer.
        let outcome = check(unsafe { libc::timer_gettime(self.0, setting.as_mut_ptr()) });
        // SAFETY: a C struct of numbers, written by the call or zeroed.
        let left = unsafe { setting.assume_init() }.it_value;
        // A timer in an unknown state must not be deleted.
        outcome.is_err() || left.tv_sec != 0 || left.tv_nsec != 0
    }
}

impl Drop for KernelTimer {
    fn drop(&mut self) {
        if !self.is_armed() {
            // SAFETY: the timer exists, and this is the last use of the value.
            let outcome = check(unsafe { libc::timer_delete(self.0) });
            debug_assert!(outcome.is_ok(), "{outcome:?}");
        }
    }
}

fn is_init() -> bool {
    std::process::id() == 1
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
