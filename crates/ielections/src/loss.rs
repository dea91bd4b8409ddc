//! Why a leadership ended: typed, so that a caller can tell a thief from a network.

use crate::{Entry, Epoch};
use std::sync::Arc;

/// Why a leadership is over, or must be handed back.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Loss {
    /// Somebody else's record stands in the slot.
    #[error("taken over by {} at epoch {}", by.holder, by.epoch)]
    Stolen {
        /// What stands there.
        by: Box<Entry>,
    },
    /// The record is gone: somebody deleted it.
    #[error("the record is gone from the storage")]
    Vanished,
    /// The record is gone, and its epoch with it: the storage went back in time.
    #[error(
        "the storage went back in time: it knew epoch {held} before and knows {} now; was it restored from a backup?",
        Epoch::or_none(*found)
    )]
    EpochWentBack {
        /// The epoch of this leadership.
        held: Epoch,
        /// What the slot shows as its last one.
        found: Option<Epoch>,
    },
    /// The storage is not the one any more in which the record stood.
    #[error("the storage was replaced: {cause}")]
    StorageReplaced {
        /// What the storage said.
        cause: Arc<str>,
    },
    /// No renewal was confirmed in time.
    #[error("no renewal was confirmed in time{}", last_failure.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default())]
    StorageUnreachable {
        /// What the last failed attempt said, if it said anything.
        last_failure: Option<Arc<str>>,
    },
    /// This process did not run for so long that its record may have been taken over: suspended, stopped,
    /// starved.
    #[error("this process did not run for so long that the leadership may have passed on")]
    Suspended,
    /// The elections are closing; the record is renewed until the leadership is handed back.
    #[error("the elections are closing")]
    Closing,
    /// The leadership was handed back.
    #[error("the leadership was handed back")]
    HandedBack,
    /// The elections' task has ended: its runtime was shut down, or something that was injected panicked.
    /// Nothing is renewed any more, and nobody is left who could disarm: the process ends at the kill
    /// deadline (I4).
    #[error(
        "the elections' task has ended (was its runtime shut down?), so that the process ends at the kill deadline"
    )]
    EngineEnded,
    /// The handle was dropped without being handed back: renewal has stopped and the deadline stays armed
    /// (I4).
    #[error("the leadership was dropped without being handed back")]
    Dropped,
}

impl Loss {
    /// Whether the storage showed that the record is no longer ours: there is nothing left to release.
    pub fn is_mismatch(&self) -> bool {
        matches!(self, Self::Stolen { .. } | Self::Vanished | Self::EpochWentBack { .. })
    }

    /// Whether the storage showed that somebody else may lead already: work has no more time than it takes to
    /// stop, and the kill deadline is brought forward.
    pub fn tightens_deadline(&self) -> bool {
        self.is_mismatch() || matches!(self, Self::StorageReplaced { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_that_went_back_is_reported_with_plain_epochs() {
        let held = Epoch::new(5).unwrap();
        let message = |found| Loss::EpochWentBack { held, found }.to_string();
        assert!(message(None).contains("it knew epoch 5 before and knows no epoch now"), "{}", message(None));
        let found = Epoch::new(3).ok();
        assert!(message(found).contains("knows epoch 3 now"), "{}", message(found));
    }
}
