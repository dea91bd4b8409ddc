//! The messages from the handles to the engine's task.

use crate::{
    AcquireError, Candidacy, Epoch, Incarnation, Key, Leadership, ReleaseOutcome, Slot, leadership::LeaseEnd,
};
use tokio::sync::{mpsc::UnboundedSender, oneshot};

/// The channel has no bound, but the number of commands has: one for each campaign begun or withdrawn, one
/// for each leadership handed back or deposed, and one for all hints that were not received yet.
pub(super) enum Command<K> {
    Campaign { ticket: u64, candidacy: Candidacy<K>, reply: oneshot::Sender<Answer<K>> },
    Withdraw { ticket: u64 },
    LookNow,
    HandBack { lease: usize, reply: oneshot::Sender<ReleaseOutcome> },
    Dropped { lease: usize },
    Shown { lease: usize, epoch: Epoch, incarnation: Incarnation, slot: Slot },
    Cleanup { done: oneshot::Sender<()> },
}

/// The result of a campaign.
pub(super) type Answer<K> = Result<(K, Grant), AcquireError>;

/// A leadership that is sent to the caller of `acquire`. If the caller is dropped before it arrives, it is
/// handed back: no work can have started under it.
#[derive(Debug)]
pub(super) struct Grant(Option<Leadership>);

impl Grant {
    pub(super) fn new(leadership: Leadership) -> Self {
        Self(Some(leadership))
    }

    pub(super) fn accept(mut self) -> Result<Leadership, AcquireError> {
        self.0.take().ok_or(AcquireError::Closing)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(leadership) = self.0.take() {
            drop(leadership.release());
        }
    }
}

impl<K: Key> LeaseEnd for UnboundedSender<Command<K>> {
    fn hand_back(&self, lease: usize, reply: oneshot::Sender<ReleaseOutcome>) {
        // Without a task the reply is dropped, which the leadership reports as `StillArmed`.
        drop(self.send(Command::HandBack { lease, reply }));
    }

    fn dropped(&self, lease: usize) {
        drop(self.send(Command::Dropped { lease }));
    }
}
