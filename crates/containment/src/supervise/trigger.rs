//! The deadman's trigger of the supervisor, which also tells the guardian and every supervision.

use super::supervisor::Guardian;
use std::{io, sync::Arc};
use tokio::sync::watch;
use vvm_clock::Instant;
use vvm_deadman::{Subject, Trigger};

/// Sets the system's own timers, and passes the deadline on.
#[derive(Debug)]
pub struct GuardedTrigger {
    system: Arc<dyn Trigger>,
    guardian: Guardian,
    deadline: watch::Sender<Option<Instant>>,
}

impl GuardedTrigger {
    /// On top of `system`.
    pub fn over(system: Arc<dyn Trigger>, guardian: Guardian) -> Self {
        Self { system, guardian, deadline: watch::Sender::new(None) }
    }

    /// The earliest deadline, as it moves.
    pub fn deadline(&self) -> watch::Receiver<Option<Instant>> {
        self.deadline.subscribe()
    }
}

impl Trigger for GuardedTrigger {
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        self.system.set_earliest(earliest)?;
        let deadline = earliest.map(|(at, _)| at);
        // A guardian that has not listened for so long that the link is full hears nothing of it: it then
        // counts as gone once the deadline that it confirmed last has passed, which is no later than this one
        // was (I4).
        self.guardian.deadline(deadline);
        self.deadline.send_replace(deadline);
        Ok(())
    }

    fn now(&self) -> Instant {
        self.system.now()
    }
}
