//! [`Alarm`] on Linux: a timerfd on `CLOCK_BOOTTIME`.

use crate::Instant;
use rustix::{
    io::Errno,
    time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
        timerfd_create, timerfd_settime,
    },
};
use std::{io, os::fd::OwnedFd};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

pub(super) fn now() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    Instant::from_nanos(time.tv_sec as u64 * NANOS_PER_SECOND + time.tv_nsec as u64)
}

/// A timer on the clock of [`SystemClock`](crate::SystemClock) that one thread waits for and any thread may
/// set. On Linux it is a timerfd, closed on exec.
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// Returns an alarm that is not set.
    ///
    /// # Errors
    /// Fails if the process is out of file descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?))
    }

    /// Sets the alarm, and replaces the previous setting, also for a thread that waits already.
    pub fn set(&self, deadline: Instant) {
        // Zero would disarm. The first nanosecond after boot is in the past, too.
        let nanos = deadline.as_nanos().clamp(1, i64::MAX as u64);
        let value =
            Timespec { tv_sec: (nanos / NANOS_PER_SECOND) as i64, tv_nsec: (nanos % NANOS_PER_SECOND) as _ };
        let never_again = Timespec { tv_sec: 0, tv_nsec: 0 };
        let outcome = timerfd_settime(
            &self.0,
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec { it_interval: never_again, it_value: value },
        );
        // The descriptor is valid and the value in range; there is no other error (timerfd_settime(2)).
        debug_assert!(outcome.is_ok(), "{outcome:?}");
    }

    /// Waits until the alarm goes off, which it does once for each setting. May return early: the caller
    /// compares the clock with its deadline.
    pub fn wait(&self) {
        let mut expirations = [0_u8; 8];
        while rustix::io::read(&self.0, &mut expirations) == Err(Errno::INTR) {}
    }
}
