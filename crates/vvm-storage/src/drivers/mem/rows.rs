//! How slots and settings lie in memory: two hash maps, since nothing asks for their order, and as few bytes
//! per record as the record allows (I11). Documents have a map of their own, in which a partition without any
//! is not found.

mod documents;

use crate::{Partition, document_set::DocumentSet};
use foldhash::HashMap;
use ielections::{Entry, Epoch, Incarnation, Slot, Vacant};
use vvm_clock::Instant;

/// All there is.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) leaders: HashMap<Partition, Leader>,
    pub(super) settings: HashMap<Partition, Box<[u8]>>,
    documents: HashMap<Partition, DocumentSet>,
}

/// A slot that has been led at least once.
#[derive(Debug)]
pub(super) enum Leader {
    /// Released; the epoch stays (I2).
    Released(Epoch),
    /// Held by this record since its write was issued.
    Held { entry: Entry, issued_at: Instant },
}

impl Rows {
    /// What stands in a slot, as seen `now`. Only the age of a record needs to know when that is.
    pub(super) fn slot(&self, at: &Partition, now: impl FnOnce() -> Instant) -> Slot {
        match self.leaders.get(at) {
            None => Slot::Vacant(Vacant { last_epoch: None }),
            Some(leader) => leader.slot(now),
        }
    }
}

impl Leader {
    /// What others see of it `now`.
    fn slot(&self, now: impl FnOnce() -> Instant) -> Slot {
        match self {
            Self::Released(epoch) => Slot::Vacant(Vacant { last_epoch: Some(*epoch) }),
            // (I5) Both readings come from the database's clock, the earlier one from after the call was
            // issued.
            Self::Held { entry, issued_at } => {
                Slot::Held { entry: entry.clone(), proven_age: Some(now().since(*issued_at)) }
            }
        }
    }

    /// Whether this version, of this epoch, stands there.
    pub(super) fn holds(&self, expected: &Entry) -> bool {
        matches!(self, Self::Held { entry, .. } if entry.is_same_write(expected))
    }

    /// Whether any version of this leadership stands there.
    pub(super) fn is_of(&self, incarnation: Incarnation, epoch: Epoch) -> bool {
        matches!(self, Self::Held { entry, .. } if entry.is_of(incarnation, epoch))
    }
}
