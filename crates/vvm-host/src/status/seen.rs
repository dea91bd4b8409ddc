//! The leaders of other slots, as this candidate last saw them. Only for people.

use ielections::{Entry, Epoch, Holder, Slot};
use std::{collections::BTreeMap, time::Duration};
use vvm_clock::Instant;

/// How many slots are kept: as many as a person reads.
const KEPT: usize = 32;

/// A record that was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// Its slot.
    pub(crate) slot: u32,
    /// Its leader.
    pub(crate) holder: Holder,
    /// Its epoch.
    pub(crate) epoch: Epoch,
    /// How long ago it was seen.
    pub(crate) ago: Duration,
}

/// The last records seen, by their slots.
#[derive(Debug, Default)]
pub(super) struct Others(BTreeMap<u32, (Entry, Instant)>);

impl Others {
    /// Records what a slot contains. Returns whether a known record was replaced since.
    pub(super) fn saw(&mut self, slot: u32, found: &Slot, now: Instant) -> bool {
        let Some(entry) = found.entry() else {
            self.forget(slot);
            return false;
        };
        let known = self.0.get(&slot).map(|(known, _)| known.version);
        if known.is_some() || self.0.len() < KEPT {
            self.0.insert(slot, (entry.clone(), now));
        }
        known.is_some_and(|known| known != entry.version)
    }

    pub(super) fn forget(&mut self, slot: u32) {
        self.0.remove(&slot);
    }

    pub(super) fn list(&self, now: Instant) -> Vec<Seen> {
        let seen = |(slot, (entry, at)): (&u32, &(Entry, Instant))| Seen {
            slot: *slot,
            holder: entry.holder.clone(),
            epoch: entry.epoch,
            ago: at.until(now),
        };
        self.0.iter().map(seen).collect()
    }
}
