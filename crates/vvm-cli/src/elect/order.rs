//! [`Inbox`]: orders to the thread of the hooks, and the kill deadline.

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

/// An order to the thread.
#[derive(Debug)]
pub(super) enum Order {
    /// Run the on-lead hook, in this environment.
    Lead { environment: Vec<(OsString, OsString)>, done: oneshot::Sender<Result<(), HookError>> },
    /// Run the on-loss hook. A running hook is killed first.
    Lose { done: oneshot::Sender<Result<(), HookError>> },
    /// End.
    End,
}

/// Orders and the kill deadline.
#[derive(Debug)]
pub(super) struct Inbox {
    state: Mutex<State>,
    /// Readable if there is an order.
    pub(super) wake: OwnedFd,
    /// Readable from the deadline on. Its clock counts suspend.
    pub(super) timer: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    orders: VecDeque<Order>,
    deadline: Option<Instant>,
}

impl Inbox {
    /// Makes an empty inbox.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self {
            state: Mutex::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            timer: timerfd_create(TimerfdClockId::Boottime, flags)?,
        })
    }

    /// Adds an order.
    pub(super) fn order(&self, order: Order) {
        self.state().orders.push_back(order);
        // An eventfd takes a one unless it stands at 2^64 - 2 (eventfd(2)).
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Removes the next order.
    pub(super) fn take(&self) -> Option<Order> {
        // First: an order that comes after this makes it readable again.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        self.state().orders.pop_front()
    }

    /// Whether the next order ends a running hook.
    pub(super) fn is_impatient(&self) -> bool {
        matches!(self.state().orders.front(), Some(Order::Lose { .. } | Order::End))
    }

    /// Replaces the deadline.
    ///
    /// # Errors
    /// If the kernel refuses. The old deadline is then still in force.
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
