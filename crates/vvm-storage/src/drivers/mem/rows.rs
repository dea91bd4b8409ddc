//! The rows in memory: hash maps, with few bytes per record (I11). A partition without documents has no entry
//! in the map of documents.

mod documents;

use crate::{Partition, document_set::DocumentSet};
use foldhash::HashMap;
use ielections::{Entry, Epoch, Incarnation, Slot, Vacant};
use vvm_clock::Instant;

/// All rows.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) leaders: HashMap<Partition, Leader>,
    pub(super) settings: HashMap<Partition, Box<[u8]>>,
    documents: HashMap<Partition, DocumentSet>,
}

/// A slot that was led at least once.
#[derive(Debug)]
pub(super) enum Leader {
    /// Released; the epoch stays (I2).
    Released(Epoch),
    /// Held by this record since its write was issued.
    Held { entry: Entry, issued_at: Instant },
}

impl Rows {
    /// Returns a slot as seen `now`, which is read only if a record's age needs it.
    pub(super) fn slot(&self, at: &Partition, now: impl FnOnce() -> Instant) -> Slot {
        match self.leaders.get(at) {
            None => Slot::Vacant(Vacant { last_epoch: None }),
            Some(leader) => leader.slot(now),
        }
    }
}

impl Leader {
    /// Returns the slot as seen `now`.
    fn slot(&self, now: impl FnOnce() -> Instant) -> Slot {
        match self {
            Self::Released(epoch) => Slot::Vacant(Vacant { last_epoch: Some(*epoch) }),
            // (I5) Both readings come from the database's clock, and `issued_at` was read after the call was
            // issued.
            Self::Held { entry, issued_at } => {
                Slot::Held { entry: entry.clone(), proven_age: Some(now().since(*issued_at)) }
            }
        }
    }

    /// Whether it is held by this version of this epoch.
    pub(super) fn holds(&self, expected: &Entry) -> bool {
        matches!(self, Self::Held { entry, .. } if entry.is_same_write(expected))
    }

    /// Whether it is held by any version of this leadership.
    pub(super) fn is_of(&self, incarnation: Incarnation, epoch: Epoch) -> bool {
        matches!(self, Self::Held { entry, .. } if entry.is_of(incarnation, epoch))
    }
}
