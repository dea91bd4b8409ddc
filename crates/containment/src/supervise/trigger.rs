//! [`GuardedTrigger`]: the supervisor's deadman trigger, which also informs guardian and supervisions.

use super::supervisor::Guardian;
use std::{io, sync::Arc};
use tokio::sync::watch;
use vvm_clock::Instant;
use vvm_deadman::{Subject, Trigger};

/// Sets the system's timers, and forwards the deadline.
#[derive(Debug)]
pub struct GuardedTrigger {
    system: Arc<dyn Trigger>,
    guardian: Guardian,
    deadline: watch::Sender<Option<Instant>>,
}

impl GuardedTrigger {
    /// Wraps `system`.
    pub fn over(system: Arc<dyn Trigger>, guardian: Guardian) -> Self {
        Self { system, guardian, deadline: watch::Sender::new(None) }
    }

    /// Returns the earliest deadline, as it moves.
    pub fn deadline(&self) -> watch::Receiver<Option<Instant>> {
        self.deadline.subscribe()
    }
}

impl Trigger for GuardedTrigger {
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        self.system.set_earliest(earliest)?;
        let deadline = earliest.map(|(at, _)| at);
        // If the link is full, the message is lost, and the guardian keeps its previous deadline. If that is
        // earlier, the guardian counts as gone once it has passed. If it is later, the system's timers and
        // the keeper still act at the new one (I4).
        self.guardian.deadline(deadline);
        self.deadline.send_replace(deadline);
        Ok(())
    }

    fn now(&self) -> Instant {
        self.system.now()
    }
}
