//! A write of the storage contract as a value that travels.

use ielections::{DocumentWrite, Entry, Epoch, Fence, Incarnation, Slot, Vacant};
use std::{fmt, sync::Arc};

#[derive(Clone)]
pub(crate) enum Write {
    Insert(u32, Vacant, Entry),
    TakeOver(u32, Entry, Entry),
    Swap(u32, Entry, Entry),
    Delete(u32, Incarnation, Epoch),
    /// A batch of documents.
    Batch(u32, Fence, Arc<[DocumentWrite]>),
}

/// The outcome of a write: `None` if it was applied, or else the slot that refused it.
pub(crate) type Outcome = Option<Slot>;

impl Write {
    pub(crate) fn key(&self) -> u32 {
        match self {
            Self::Insert(key, ..)
            | Self::TakeOver(key, ..)
            | Self::Swap(key, ..)
            | Self::Delete(key, ..)
            | Self::Batch(key, ..) => *key,
        }
    }

    /// The incarnation of the leadership under which it is written; `None` for a claim.
    pub(crate) fn leadership(&self) -> Option<Incarnation> {
        match self {
            Self::Insert(..) | Self::TakeOver(..) => None,
            Self::Swap(_, held, _) => Some(held.incarnation()),
            Self::Delete(_, incarnation, _) => Some(*incarnation),
            Self::Batch(_, fence, _) => Some(fence.incarnation),
        }
    }
}

/// Short: a trace has many of them.
impl fmt::Debug for Write {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |entry: &Entry| format!("{} {:?}", entry.epoch, entry.version);
        match self {
            Self::Insert(key, vacant, entry) => {
                write!(out, "claim {key} after {:?}: {}, TTL {}", vacant.last_epoch, name(entry), entry.ttl)
            }
            Self::TakeOver(key, from, entry) => {
                write!(out, "take over {key} from {}: {}, TTL {}", name(from), name(entry), entry.ttl)
            }
            Self::Swap(key, held, entry) => {
                write!(out, "renew {key}: {}, before {}", name(entry), held.version.write)
            }
            Self::Delete(key, incarnation, epoch) => write!(out, "release {key}: {epoch} {incarnation:?}"),
            Self::Batch(key, fence, writes) => write!(out, "batch {key}: {fence:?}, {} writes", writes.len()),
        }
    }
}
