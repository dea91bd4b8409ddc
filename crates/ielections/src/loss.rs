//! [`Loss`]: why a leadership ended.

use crate::{Entry, Epoch};
use std::sync::Arc;

/// Why a leadership is over, or must be handed back.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Loss {
    /// The slot has the record of another leadership.
    #[error("taken over by {} at epoch {}", by.holder, by.epoch)]
    Stolen {
        /// That record.
        by: Box<Entry>,
    },
    /// The record is gone: another program or the operator deleted it.
    #[error("the record is gone from the storage")]
    Vanished,
    /// The record is gone, and its epoch with it: the storage went back in time.
    #[error(
        "the storage went back in time: it showed epoch {held} before and {} now; \
         was it restored from a backup?",
        Epoch::or_none(*found)
    )]
    EpochWentBack {
        /// The epoch of this leadership.
        held: Epoch,
        /// The last epoch of the slot now.
        found: Option<Epoch>,
    },
    /// The storage was deleted, replaced or restored.
    #[error("the storage was replaced: {cause}")]
    StorageReplaced {
        /// The storage's reason.
        cause: Arc<str>,
    },
    /// No renewal was confirmed in time.
    #[error(
        "no renewal was confirmed in time{}",
        last_failure.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default()
    )]
    StorageUnreachable {
        /// The last failure of an attempt, if one failed.
        last_failure: Option<Arc<str>>,
    },
    /// This process was suspended, stopped or starved for so long that another one may have taken over.
    #[error("this process did not run for so long that the leadership may have passed on")]
    Suspended,
    /// The elections are closing; the record is renewed until the leadership is handed back.
    #[error("the elections are closing")]
    Closing,
    /// The leadership was handed back.
    #[error("the leadership was handed back")]
    HandedBack,
    /// The elections' task has ended: its runtime was shut down, or a part of its environment panicked. No
    /// renewal follows, and only that task could disarm: the process ends at the kill deadline (I4).
    #[error(
        "the elections' task has ended (was its runtime shut down?): the process ends at the kill deadline"
    )]
    EngineEnded,
    /// The handle was dropped without being handed back: renewal has stopped and the deadline stays armed
    /// (I4).
    #[error("the leadership was dropped without being handed back")]
    Dropped,
}

impl Loss {
    /// Whether the storage showed that the record is no longer ours, so there is none to release.
    pub fn is_mismatch(&self) -> bool {
        matches!(self, Self::Stolen { .. } | Self::Vanished | Self::EpochWentBack { .. })
    }

    /// Whether another process may lead already, so that the kill deadline is brought forward.
    pub fn tightens_deadline(&self) -> bool {
        self.is_mismatch() || matches!(self, Self::StorageReplaced { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_about_a_storage_that_went_back_shows_plain_epochs() {
        let held = Epoch::new(5).unwrap();
        let message = |found| Loss::EpochWentBack { held, found }.to_string();
        assert!(message(None).contains("it showed epoch 5 before and no epoch now"), "{}", message(None));
        let found = Epoch::new(3).ok();
        assert!(message(found).contains("and epoch 3 now"), "{}", message(found));
    }
}
