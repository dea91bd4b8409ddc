//! [`Standing`]: what work under a leadership can read of it.

use crate::{
    Entry, Epoch, Incarnation,
    documents::{DocumentAccess, Documents, Partition, RenewalTurn},
    loss::Loss,
    state::LeadershipState,
};
use std::{fmt, sync::Arc, time::Duration};
use vvm_clock::{Clock, Instant, Span};

/// The state of one leadership, for the work that runs under it. Read-only and cheap to clone.
#[derive(Clone)]
pub struct Standing(Arc<DocumentAccess<dyn Partition>>);

/// Too little time is left of this leadership.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InsufficientTime {
    /// The leadership is over, or must be handed back. Stop.
    #[error(transparent)]
    Lost(Loss),
    /// The leadership stands, and a renewal may still be confirmed in time. Check again before the step.
    #[error("{} are left of the leadership, and {} are needed", Span(*remaining), Span(*at_least))]
    TooShort {
        /// How long until the kill deadline.
        remaining: Duration,
        /// How long the step needs.
        at_least: Duration,
    },
}

impl Standing {
    pub(crate) fn new(
        entry: &Entry,
        sent_at: Instant,
        clock: Arc<dyn Clock>,
        partition: impl Partition + 'static,
    ) -> Self {
        Self(Arc::new(DocumentAccess::new(LeadershipState::new(entry, sent_at, clock), partition)))
    }

    /// The fencing token. Pass it to every system that can compare it (I2).
    pub fn epoch(&self) -> Epoch {
        self.state().epoch
    }

    /// Identifies the acquisition of this leadership.
    pub fn incarnation(&self) -> Incarnation {
        self.state().incarnation
    }

    /// When the process is killed unless a renewal is confirmed before (I3).
    pub fn kill_at(&self) -> Instant {
        self.state().kill_at()
    }

    /// How long from now until [`Standing::kill_at`]; zero once the leadership is lost.
    pub fn remaining(&self) -> Duration {
        self.state().remaining()
    }

    /// Checks that at least so much time is left. Call it right before a critical step. Neither waits nor
    /// locks.
    ///
    /// # Errors
    /// [`InsufficientTime`]: don't begin the step.
    pub fn ensure(&self, at_least: Duration) -> Result<(), InsufficientTime> {
        if let Some(loss) = self.loss() {
            return Err(InsufficientTime::Lost(loss.clone()));
        }
        let remaining = self.remaining();
        // Zero fails even a step that needs no time: past the deadline another process may lead.
        if remaining.is_zero() || remaining < at_least {
            return Err(InsufficientTime::TooShort { remaining, at_least });
        }
        Ok(())
    }

    /// Why the leadership is over, if it is.
    pub fn loss(&self) -> Option<&Loss> {
        self.state().loss()
    }

    /// Waits until the leadership is over or must be handed back.
    ///
    /// # Cancel safety
    /// The future may be dropped. Any number of tasks may wait.
    pub async fn lost(&self) -> Loss {
        self.state().until_lost().await
    }

    /// Waits until no renewal has been confirmed for half a TTL, and returns the time that is left: a
    /// warning. Returns at once if the leadership is at risk or over already.
    ///
    /// # Cancel safety
    /// The future may be dropped. Any number of tasks may wait.
    pub async fn at_risk(&self) -> Duration {
        self.state().until_at_risk().await
    }

    /// Returns the documents of the slot that is led, or `None` if the storage keeps none or the elections
    /// have ended.
    pub fn documents(&self) -> Option<Documents> {
        Documents::open(&self.0)
    }

    /// Announces a renewal to the document writer; `None` if this leadership writes no documents.
    pub(crate) fn renewal_turn(&self) -> Option<RenewalTurn> {
        RenewalTurn::begin(&self.0)
    }

    pub(crate) fn state(&self) -> &LeadershipState {
        self.0.state()
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state().fmt(out)
    }
}
