//! [`GuardianDeadline`]: waits until the guardian enforces the kill deadline.

use ielections::Ttl;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant};
use vvm_host::StopRequested;
use vvm_orch::BoxError;

/// The guardian did not confirm the kill deadline in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the guardian does not answer (stopped by Ctrl-Z?), so the command would not be contained")]
pub(super) struct GuardianSilent;

/// The kill deadline of this process, and the one that the guardian has confirmed.
#[derive(Clone, Debug)]
pub(super) struct GuardianDeadline {
    pub(super) deadline: watch::Receiver<Option<Instant>>,
    pub(super) in_force: watch::Receiver<Option<Instant>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ttl: Ttl,
}

impl GuardianDeadline {
    /// Waits until the guardian's own timer is set to our deadline or a later one. Without it, no process
    /// would kill what the command leaves behind if guardian and host were stopped together.
    ///
    /// # Errors
    /// [`GuardianSilent`] after TTL/4, and `StopRequested` when `stop` is cancelled.
    pub(super) async fn is_in_force(&self, stop: &CancellationToken) -> Result<(), BoxError> {
        let deadline = *self.deadline.borrow();
        let mut in_force = self.in_force.clone();
        tokio::select! {
            biased;
            // The sender lives as long as this process.
            _ = in_force.wait_for(|at| at.is_some() && *at >= deadline) => Ok(()),
            () = stop.cancelled() => Err(StopRequested.into()),
            // As long as an acquisition counts as fresh.
            () = self.clock.sleep(self.ttl.get() / 4) => Err(GuardianSilent.into()),
        }
    }
}
