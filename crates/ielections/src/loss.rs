//! Why a leadership ended: typed, so that a caller can tell a thief from a network.

use crate::Entry;
use std::sync::Arc;

/// Why a leadership is over, or must be handed back.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Loss {
    /// Somebody else's record stands in the slot.
    #[error("taken over by {} at {:?}", by.holder, by.epoch)]
    Stolen {
        /// What stands there.
        by: Box<Entry>,
    },
    /// The record is gone: deleted by somebody, or forgotten by the storage.
    #[error("the record is gone from the storage")]
    Vanished,
    /// No renewal was confirmed in time.
    #[error("no renewal was confirmed in time{}", last_failure.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default())]
    StorageUnreachable {
        /// What the last failed attempt said, if it said anything.
        last_failure: Option<Arc<str>>,
    },
    /// This process did not run for so long that its record may have been taken over: suspended, stopped, starved.
    #[error("this process did not run for so long that the leadership may have passed on")]
    Suspended,
    /// The elections are closing; the record is renewed until the leadership is handed back.
    #[error("the elections are closing")]
    Closing,
    /// The leadership was handed back.
    #[error("the leadership was handed back")]
    HandedBack,
    /// The handle was dropped without being handed back: renewal has stopped and the deadline stays armed (I4).
    #[error("the leadership was dropped without being handed back")]
    Dropped,
}

impl Loss {
    /// Whether the storage showed that the record is no longer ours. There is nothing left to release then, and the
    /// kill deadline is tightened.
    pub fn is_mismatch(&self) -> bool {
        matches!(self, Self::Stolen { .. } | Self::Vanished)
    }
}
