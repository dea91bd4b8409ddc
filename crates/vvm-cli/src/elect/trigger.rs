//! [`HookTrigger`]: the deadman's trigger of `vvm elect`. At the deadline the thread of the hooks runs the
//! on-loss hook, and ends the process after it.
//!
//! The system's trigger would end the process at the deadline, without the on-loss hook. A thread, because
//! the async runtime may hang.

use super::{demoter::Demoter, order::Inbox, to_demoter::ToDemoter};
use std::{io, sync::Arc};
use vvm_clock::{Instant, SystemClock};
use vvm_deadman::{Subject, Trigger};

/// Hands the deadline to the thread and to the demoter.
#[derive(Debug)]
pub(super) struct HookTrigger {
    pub(super) inbox: Arc<Inbox>,
    pub(super) demoter: Arc<Demoter>,
}

impl Trigger for HookTrigger {
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        let earliest = earliest.map(|(at, _)| at);
        self.demoter.tell(ToDemoter::Deadline(earliest));
        self.inbox.set_deadline(earliest)
    }

    fn now(&self) -> Instant {
        SystemClock::read()
    }
}
