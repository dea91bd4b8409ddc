//! A write of the storage contract as a value that travels.

use ielections::{Entry, Epoch, Incarnation, Slot, Vacant};

#[derive(Clone, Debug)]
pub(crate) enum Write {
    Insert(u32, Vacant, Entry),
    TakeOver(u32, Entry, Entry),
    Swap(u32, Entry, Entry),
    Delete(u32, Incarnation, Epoch),
}

/// The outcome of a write: `None` if it was applied, or else the slot that refused it.
pub(crate) type Outcome = Option<Slot>;

impl Write {
    pub(crate) fn key(&self) -> u32 {
        match self {
            Self::Insert(key, ..) | Self::TakeOver(key, ..) | Self::Swap(key, ..) | Self::Delete(key, ..) => {
                *key
            }
        }
    }
}
