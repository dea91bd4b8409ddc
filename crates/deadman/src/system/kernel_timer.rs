//! The layer in the kernel: a POSIX timer on the clock that counts suspend, whose signal is SIGKILL.
//!
//! It needs no thread, no scheduling and no memory of the process that it ends. Measured: idle, stopped,
//! spinning, all signals blocked, in a frozen cgroup: dead within 1 ms of the deadline.

use crate::ArmError;
use std::{io, mem::MaybeUninit, ptr};
use vvm_clock::Instant;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A timer that kills this process, on its own: all that a small single-threaded process needs, and the
/// second layer of [`SystemTrigger`](super::SystemTrigger).
///
/// Belongs to the process that made it: a forked child has no such timer and must not use this value, and
/// `exec` deletes it.
///
/// # Dropping
/// An armed timer stays, and kills (I4). One that is not is deleted (I9).
#[derive(Debug)]
pub struct KernelTimer(libc::timer_t);

// SAFETY: the value is the kernel's name for a timer of this process (a number, or the C library's note of
// one, which nobody writes to until it is deleted); every thread of the process may use it.
unsafe impl Send for KernelTimer {}

// SAFETY: as above; the calls that take it by reference, timer_settime and timer_gettime, may be made at
// once.
unsafe impl Sync for KernelTimer {}

impl KernelTimer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] in process 1 of a PID namespace, which would ignore the signal
    /// ([`ArmError::UnkillableInit`] is the cause given). Otherwise the kernel's: too many timers (they count
    /// as pending signals, `ulimit -i`), or a sandbox that forbids them.
    pub fn new() -> io::Result<Self> {
        if is_init() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, ArmError::UnkillableInit));
        }
        // SAFETY: a plain C struct of numbers and pointers, for all of which zero is a value.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGKILL;
        let mut timer = ptr::null_mut();
        // SAFETY: both pointers are to live values of the types that the call reads and writes.
        check(unsafe { libc::timer_create(libc::CLOCK_BOOTTIME, &mut event, &mut timer) })?;
        Ok(Self(timer))
    }

    /// Replaces the moment at which the kernel kills this process; `None` for never. One system call. A
    /// moment that has passed kills at once.
    ///
    /// # Errors
    /// None that the kernel documents for a timer that exists (timer_settime(2)). Were there one, what was
    /// set before would still be in force.
    pub fn set(&self, at: Option<Instant>) -> io::Result<()> {
        // Zero would disarm; the first nanosecond after boot is as much in the past.
        let nanos = at.map_or(0, |at| at.as_nanos().max(1));
        let setting = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                // A type that is too small (32 bits) makes a far deadline an earlier one, never a later one.
                tv_sec: (nanos / NANOS_PER_SECOND).try_into().unwrap_or(libc::time_t::MAX),
                tv_nsec: (nanos % NANOS_PER_SECOND) as libc::c_long,
            },
        };
        // SAFETY: the timer exists as long as this value; the pointer is to a live value that the call only
        // reads, and a null pointer stands for "the old setting is of no interest".
        check(unsafe { libc::timer_settime(self.0, libc::TIMER_ABSTIME, &setting, ptr::null_mut()) })
    }

    fn is_armed(&self) -> bool {
        let mut setting = MaybeUninit::<libc::itimerspec>::zeroed();
        // SAFETY: the timer exists as long as this value; the pointer is to a live value that the call
        // writes.
        let outcome = check(unsafe { libc::timer_gettime(self.0, setting.as_mut_ptr()) });
        // SAFETY: a plain C struct of numbers, written by the call or still zeroed.
        let left = unsafe { setting.assume_init() }.it_value;
        // A timer that can't be asked is not one to be deleted.
        outcome.is_err() || left.tv_sec != 0 || left.tv_nsec != 0
    }
}

impl Drop for KernelTimer {
    fn drop(&mut self) {
        if !self.is_armed() {
            // SAFETY: the timer exists, and this is the last use of its name.
            let outcome = check(unsafe { libc::timer_delete(self.0) });
            debug_assert!(outcome.is_ok(), "{outcome:?}");
        }
    }
}

/// Whether this is process 1 of its PID namespace.
pub(super) fn is_init() -> bool {
    std::process::id() == 1
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
