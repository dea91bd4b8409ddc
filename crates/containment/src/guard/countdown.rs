//! The guardian's own deadline: shortly after the supervisor's, it ends everything, even if the supervisor
//! does not.
//!
//! The supervisor has timers of its own and dies by them. This one is for the case that it can't, and a timer
//! that wakes is the right kind: it works in process 1, which ignores kill timers, and it leaves alive the
//! process that has to clean up. A timer that *kills* the guardian would not: after a suspend both would be
//! due at once, and what the command left behind would be left alone. A living supervisor notices a guardian
//! that is stopped or hangs (`supervise::guardian_lapse`).

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};
use vvm_clock::Instant;

/// How long after the host's deadline: twice what its second layer takes, so that the supervisor can have its
/// last words.
const BEHIND_THE_SUPERVISOR: Duration = vvm_deadman::SECOND_LAYER_BEHIND.saturating_mul(2);

/// The timer.
#[derive(Debug)]
pub(crate) struct Countdown(OwnedFd);

impl Countdown {
    /// A timer that stands still.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, flags)?))
    }

    /// When it rings for a deadline of the supervisor.
    pub(crate) fn rings_at(deadline: Instant) -> Instant {
        deadline.after(BEHIND_THE_SUPERVISOR)
    }

    /// Replaces the deadline, as the supervisor says.
    ///
    /// # Errors
    /// When the kernel refuses; the deadline before it is then still in force.
    pub(crate) fn set(&self, deadline: Option<Instant>) -> io::Result<()> {
        let wake_at = deadline.map_or(Duration::ZERO, |at| {
            // Zero would disarm; the first nanosecond after boot is as much in the past.
            Duration::from_nanos(Self::rings_at(at).as_nanos().clamp(1, i64::MAX as u64))
        });
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: wake_at.as_secs() as i64, tv_nsec: wake_at.subsec_nanos().into() },
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }
}

/// Readable once it has rung.
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

    fn has_rung(countdown: &Countdown) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(countdown, PollFlags::IN)], Some(&at_once)).unwrap() > 0
    }

    #[test]
    fn rings_after_the_deadline_unless_it_moved() {
        let countdown = Countdown::new().unwrap();
        let deadline = SystemClock::read().after(Duration::from_millis(20));
        countdown.set(Some(deadline)).unwrap();
        assert!(!has_rung(&countdown));
        poll(&mut [PollFd::new(&countdown, PollFlags::IN)], None).unwrap();
        assert!(SystemClock::read() >= deadline.after(BEHIND_THE_SUPERVISOR));
        countdown.set(Some(Instant::NEVER)).unwrap();
        assert!(!has_rung(&countdown));
        countdown.set(Some(Instant::ORIGIN)).unwrap();
        assert!(has_rung(&countdown));
        countdown.set(None).unwrap();
        assert!(!has_rung(&countdown));
    }
}
