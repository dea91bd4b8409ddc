//! What the thread of the hooks is told, and by whom it is woken.

use super::hook_error::HookError;
use rustix::{
    event::{EventfdFlags, eventfd},
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};
use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;
use vvm_clock::Instant;

/// Something to do.
#[derive(Debug)]
pub(super) enum Order {
    /// Run the on-lead hook, in this environment.
    Lead { environment: Vec<(OsString, OsString)>, done: oneshot::Sender<Result<(), HookError>> },
    /// Run the on-loss hook; one that runs is killed first.
    Lose { done: oneshot::Sender<()> },
    /// End.
    End,
}

/// Orders, and the kill deadline, which is an order of its own once it has come.
#[derive(Debug)]
pub(super) struct Inbox {
    state: Mutex<State>,
    /// Readable when there is an order.
    pub(super) wake: OwnedFd,
    /// Readable at the deadline, on the clock that counts suspend.
    pub(super) timer: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    orders: VecDeque<Order>,
    deadline: Option<Instant>,
}

impl Inbox {
    /// # Errors
    /// When the process is out of descriptors.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self {
            state: Mutex::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            timer: timerfd_create(TimerfdClockId::Boottime, flags)?,
        })
    }

    /// Hands in an order.
    pub(super) fn order(&self, order: Order) {
        self.state().orders.push_back(order);
        // An eventfd takes a one unless it stands at 2^64 - 2 (eventfd(2)).
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// The next order, if there is one.
    pub(super) fn take(&self) -> Option<Order> {
        // What comes after this makes it readable again.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        self.state().orders.pop_front()
    }

    /// Whether the next order ends the hook that runs.
    pub(super) fn is_impatient(&self) -> bool {
        matches!(self.state().orders.front(), Some(Order::Lose { .. } | Order::End))
    }

    /// Replaces the deadline.
    ///
    /// # Errors
    /// When the kernel refuses; the one before it is then still in force.
    pub(super) fn set_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
        let mut state = self.state();
        let at = deadline.map_or(Duration::ZERO, |at| {
            // Zero would disarm; the first nanosecond after boot is as much in the past.
            Duration::from_nanos(at.as_nanos().clamp(1, i64::MAX as u64))
        });
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: at.as_secs() as i64, tv_nsec: at.subsec_nanos().into() },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        state.deadline = deadline;
        Ok(())
    }

    /// Whether the deadline has passed at `now`.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.state().deadline.is_some_and(|at| now >= at)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
