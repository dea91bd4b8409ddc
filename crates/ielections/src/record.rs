//! The vocabulary of the protocol: the leadership record, its parts, and the states of a slot.

mod epoch;
mod holder;
mod incarnation;
mod ttl;

pub use epoch::{Epoch, EpochOutOfRange};
pub use holder::{Holder, HolderTooLong};
pub use incarnation::{Incarnation, Version};
pub use ttl::{Ttl, TtlOutOfRange};

use std::time::Duration;

/// A leadership record, as one write left it.
///
/// It has its writer's TTL. An observer must wait for that one: an observer that waits for its own TTL takes
/// over from a live leader with a longer one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The name of the leader, for people. Never an identity.
    pub holder: Holder,
    /// Identifies the write. Equal versions mean the same write.
    pub version: Version,
    /// How long after its write an observer must wait before taking over.
    pub ttl: Ttl,
    /// The fencing token: constant over renewals, larger for each new leadership of the key.
    pub epoch: Epoch,
}

impl Entry {
    /// Identifies the acquisition attempt of this record.
    pub fn incarnation(&self) -> Incarnation {
        self.version.incarnation
    }

    /// Returns the record that a renewal writes: the same leadership with a new version.
    #[must_use]
    pub fn renewed(&self, version: Version) -> Self {
        Self { version, ..self.clone() }
    }

    /// Whether `other` is the same write: the condition of a renewal or take-over (contract 3).
    pub fn is_same_write(&self, other: &Self) -> bool {
        self.version == other.version && self.epoch == other.epoch
    }

    /// Whether it belongs to this leadership, in any version: the condition of a release (contract 4).
    pub fn is_of(&self, incarnation: Incarnation, epoch: Epoch) -> bool {
        self.incarnation() == incarnation && self.epoch == epoch
    }

    /// Orders the records of one slot by age: a smaller one was written earlier.
    pub fn age_order(&self) -> (Epoch, u64) {
        (self.epoch, self.version.write)
    }
}

/// A slot without a record. Its epoch survives every release.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vacant {
    /// The epoch of the last leadership; `None` if there was none.
    pub last_epoch: Option<Epoch>,
}

/// The state of a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Slot {
    /// Never led, or released. A slot with an *expired* record is not vacant: it stays `Held` until a
    /// candidate takes it over (I5).
    Vacant(Vacant),
    /// The slot has a record, whether or not its leader is alive.
    Held {
        /// The record.
        entry: Entry,
        /// The record was written at least this long ago. Only if the driver can *prove* it without wall
        /// clocks (same process, or same boot and time namespace). With `None` an observer counts from its
        /// first read.
        proven_age: Option<Duration>,
    },
}

impl Slot {
    /// The record, if the slot has one.
    pub fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Held { entry, .. } => Some(entry),
            Self::Vacant(_) => None,
        }
    }

    /// Whether the slot is in the state `expected`, as a claim compares it (contract 2 and 3): the same last
    /// epoch of a vacant slot, or the same write of a held one.
    pub fn is_as_expected(&self, expected: &Self) -> bool {
        match (self, expected) {
            (Self::Vacant(stands), Self::Vacant(expected)) => stands == expected,
            (Self::Held { entry: stands, .. }, Self::Held { entry: expected, .. }) => {
                stands.is_same_write(expected)
            }
            (Self::Vacant(_), Self::Held { .. }) | (Self::Held { .. }, Self::Vacant(_)) => false,
        }
    }

    /// The largest epoch this slot has had.
    pub fn last_epoch(&self) -> Option<Epoch> {
        match self {
            Self::Held { entry, .. } => Some(entry.epoch),
            Self::Vacant(vacant) => vacant.last_epoch,
        }
    }
}
