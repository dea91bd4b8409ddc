//! The deadman's trigger of `vvm elect`: the thread of the hooks, which begins the on-loss hook at the
//! deadline if nobody has yet, and ends the process when that hook has ended.
//!
//! Not the system's trigger, which would end the process at the deadline and leave what was promoted as it
//! is. And a thread, because the deadline is for the case that everything else hangs.

use super::order::Inbox;
use std::{io, sync::Arc};
use vvm_clock::{Instant, SystemClock};
use vvm_deadman::{Subject, Trigger};

/// Tells the thread of the deadline.
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
