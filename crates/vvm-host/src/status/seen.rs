//! Who leads which slot, as this candidate last saw it on its way: a hint for people, and never more.

use ielections::{Epoch, Holder, Slot};
use std::{collections::BTreeMap, time::Duration};
use vvm_clock::Instant;

/// How many slots are remembered: what somebody would read.
const REMEMBERED: usize = 32;

/// The record of somebody else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// In this slot.
    pub(crate) slot: u32,
    /// Whose it is, for people.
    pub(crate) holder: Holder,
    /// Under which epoch.
    pub(crate) epoch: Epoch,
    /// How long ago we looked.
    pub(crate) ago: Duration,
}

/// The last records seen, by their slots.
#[derive(Debug, Default)]
pub(super) struct Others(BTreeMap<u32, (Holder, Epoch, Instant)>);

impl Others {
    pub(super) fn saw(&mut self, slot: u32, found: &Slot, now: Instant) {
        match found.entry() {
            None => self.forget(slot),
            Some(entry) => {
                let is_known = self.0.contains_key(&slot);
                if is_known || self.0.len() < REMEMBERED {
                    self.0.insert(slot, (entry.holder.clone(), entry.epoch, now));
                }
            }
        }
    }

    pub(super) fn forget(&mut self, slot: u32) {
        self.0.remove(&slot);
    }

    pub(super) fn list(&self, now: Instant) -> Vec<Seen> {
        let seen = |(slot, (holder, epoch, at)): (&u32, &(Holder, Epoch, Instant))| Seen {
            slot: *slot,
            holder: holder.clone(),
            epoch: *epoch,
            ago: at.until(now),
        };
        self.0.iter().map(seen).collect()
    }
}
