//! The words of the protocol as types: what stands in a leadership record, and what a slot can look like.

mod epoch;
mod holder;
mod incarnation;
mod ttl;

pub use epoch::{Epoch, EpochOutOfRange};
pub use holder::{Holder, HolderTooLong};
pub use incarnation::{Incarnation, Version};
pub use ttl::{Ttl, TtlOutOfRange};

use std::time::Duration;

/// A leadership record, as one write put it there.
///
/// It carries its writer's own TTL: an observer waits out that one, never its own (design hazard: an observer
/// that waits its own TTL takes over from a live leader with a longer one).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Who leads, for people. Never an identity.
    pub holder: Holder,
    /// Which write of which acquisition attempt this is. Unique: equal versions mean the same write.
    pub version: Version,
    /// How long after its write an observer must wait before taking over.
    pub ttl: Ttl,
    /// The fencing token: constant over renewals, larger for each new leadership of the key.
    pub epoch: Epoch,
}

impl Entry {
    /// Which acquisition attempt this record came from.
    pub fn incarnation(&self) -> Incarnation {
        self.version.incarnation
    }

    /// What the next renewal of this record would write: same leadership, a fresh version.
    #[must_use]
    pub fn renewed(&self, version: Version) -> Self {
        Self { version, ..self.clone() }
    }

    /// Whether `other` is this very write: what a renewal or takeover compares (contract 3).
    pub fn is_same_write(&self, other: &Self) -> bool {
        self.version == other.version && self.epoch == other.epoch
    }

    /// Whether it belongs to this leadership, whatever its version: what a release compares (contract 4).
    pub fn is_of(&self, incarnation: Incarnation, epoch: Epoch) -> bool {
        self.incarnation() == incarnation && self.epoch == epoch
    }

    /// Total order of the states of one slot: a smaller one was there earlier, whatever order answers arrive
    /// in.
    pub fn age_order(&self) -> (Epoch, u64) {
        (self.epoch, self.version.write)
    }
}

/// A slot that nobody holds. Its epoch survives every release.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vacant {
    /// The epoch of the last leadership; `None` when there never was one.
    pub last_epoch: Option<Epoch>,
}

/// What a read of a slot finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Slot {
    /// Never led, or released. An *expired* record is not vacant: it stays `Held` until somebody takes it
    /// over (I5).
    Vacant(Vacant),
    /// A record stands there, whether or not its leader still lives.
    Held {
        /// The record.
        entry: Entry,
        /// At least this long ago its write was issued, where the driver can *prove* that without wall clocks
        /// (same process, or same boot and time namespace); else `None`, and an observer counts from what it
        /// saw itself.
        proven_age: Option<Duration>,
    },
}

impl Slot {
    /// The record, if one stands there.
    pub fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Held { entry, .. } => Some(entry),
            Self::Vacant(_) => None,
        }
    }

    /// Whether the slot is in the very state `expected`, as a claim compares it (contract 2 and 3): the same
    /// last epoch of a vacant one, the same write of a held one, however old.
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
