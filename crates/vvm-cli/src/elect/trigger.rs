//! [`HookTrigger`]: the deadman's trigger of `vvm elect`. At the deadline the thread of the hooks runs the
//! on-loss hook, and ends the process after it.
//!
//! The system's trigger would end the process at the deadline, without the on-loss hook. A thread, because
//! the async runtime may hang.

use super::order::Inbox;
use std::{io, sync::Arc};
use vvm_clock::{Instant, SystemClock};
use vvm_deadman::{Subject, Trigger};

/// Hands the deadline to the thread.
#[derive(Debug)]
pub(super) struct HookTrigger(pub(super) Arc<Inbox>);

impl Trigger for HookTrigger {
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        self.0.set_deadline(earliest.map(|(at, _)| at))
    }

    fn now(&self) -> Instant {
        SystemClock::read()
    }
}
