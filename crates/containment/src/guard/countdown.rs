//! [`Countdown`]: the guardian's timer, shortly after the supervisor's deadline.
//!
//! It wakes the guardian and does not kill it: process 1 ignores kill timers, and after a suspend both timers
//! would be due at once and leave the command's processes behind. A supervisor notices a guardian that is
//! stopped or hangs (`supervise::guardian_lapse`).

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};
use vvm_clock::Instant;

/// The time after the supervisor's deadline: twice that of its second layer, so that the supervisor can still
/// log its end.
const BEHIND_THE_SUPERVISOR: Duration = vvm_deadman::SECOND_LAYER_BEHIND.saturating_mul(2);

/// The timer. Its descriptor is readable once it has expired.
#[derive(Debug)]
pub(crate) struct Countdown(OwnedFd);

impl Countdown {
    /// Creates a timer that is not armed.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, flags)?))
    }

    /// Returns when the timer expires for a deadline of the supervisor.
    pub(crate) fn expires_at(deadline: Instant) -> Instant {
        deadline.after(BEHIND_THE_SUPERVISOR)
    }

    /// Replaces the supervisor's deadline.
    ///
    /// # Errors
    /// If the kernel refuses; the earlier deadline is then still in force.
    pub(crate) fn set(&self, deadline: Option<Instant>) -> io::Result<()> {
        let wake_at = deadline.map_or(Duration::ZERO, |at| {
            // Zero would disarm. The first nanosecond after boot is in the past, too.
            Duration::from_nanos(Self::expires_at(at).as_nanos().clamp(1, i64::MAX as u64))
        });
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: wake_at.as_secs() as i64, tv_nsec: wake_at.subsec_nanos().into() },
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }
}

impl AsFd for Countdown {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use vvm_clock::SystemClock;

    fn has_expired(countdown: &Countdown) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(countdown, PollFlags::IN)], Some(&at_once)).unwrap() > 0
    }

    #[test]
    fn timer_expires_after_the_deadline_unless_it_moved() {
        let countdown = Countdown::new().unwrap();
        let deadline = SystemClock::read().after(Duration::from_millis(20));
        countdown.set(Some(deadline)).unwrap();
        assert!(!has_expired(&countdown));
        poll(&mut [PollFd::new(&countdown, PollFlags::IN)], None).unwrap();
        assert!(SystemClock::read() >= deadline.after(BEHIND_THE_SUPERVISOR));
        countdown.set(Some(Instant::NEVER)).unwrap();
        assert!(!has_expired(&countdown));
        countdown.set(Some(Instant::ORIGIN)).unwrap();
        assert!(has_expired(&countdown));
        countdown.set(None).unwrap();
        assert!(!has_expired(&countdown));
    }
}
