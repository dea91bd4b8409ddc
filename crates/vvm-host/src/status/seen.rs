//! The leaders of other slots, as this candidate last saw them. Only for people.

use ielections::{Entry, Epoch, Holder, Slot};
use std::{collections::BTreeMap, fmt, time::Duration};
use vvm_clock::Instant;

const KEPT: usize = 32;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SeenLeader {
    pub(crate) slot: u32,
    pub(crate) holder: Holder,
    pub(crate) epoch: Epoch,
    pub(crate) ago: Duration,
    /// Whether it had stood unchanged for its TTL by then: its leader is dead.
    pub(crate) is_expired: bool,
}

impl fmt::Display for SeenLeader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slot, holder, epoch, is_expired, .. } = self;
        let state = if *is_expired { "has an expired record of" } else { "is led by" };
        write!(out, "slot {slot} {state} {holder}, epoch {epoch}")
    }
}

#[derive(Debug, Default)]
pub(super) struct OtherLeaders {
    records: BTreeMap<u32, SeenRecord>,
    /// The last epochs of slots, also of those that are free now.
    epochs: BTreeMap<u32, Epoch>,
}

#[derive(Debug)]
struct SeenRecord {
    entry: Entry,
    written: Instant,
    seen: Instant,
}

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RecordChange {
    pub(super) was_written: bool,
    pub(super) has_new_leader: bool,
}

impl OtherLeaders {
    pub(super) fn saw(&mut self, slot: u32, found: &Slot, now: Instant) -> RecordChange {
        let Some(entry) = found.entry() else {
            self.forget(slot);
            return RecordChange::default();
        };
        let known = self.records.get(&slot).map(|known| (known.entry.version, known.written));
        if known.is_some() || self.records.len() < KEPT {
            let proven_age = if let Slot::Held { proven_age, .. } = found { *proven_age } else { None };
            let first_seen = known.filter(|(version, _)| *version == entry.version).map_or(now, |(_, at)| at);
            let written = first_seen.min(now.before(proven_age.unwrap_or_default()));
            self.records.insert(slot, SeenRecord { entry: entry.clone(), written, seen: now });
        }
        let known = known.map(|(version, _)| version);
        let has_new_leader = self.records.contains_key(&slot)
            && self.epochs.insert(slot, entry.epoch).is_some_and(|epoch| epoch < entry.epoch);
        RecordChange { was_written: known.is_some_and(|known| known != entry.version), has_new_leader }
    }

    pub(super) fn forget(&mut self, slot: u32) {
        self.records.remove(&slot);
    }

    pub(super) fn list(&self, now: Instant) -> Vec<SeenLeader> {
        let seen = |(slot, SeenRecord { entry, written, seen }): (&u32, &SeenRecord)| SeenLeader {
            slot: *slot,
            holder: entry.holder.clone(),
            epoch: entry.epoch,
            ago: seen.until(now),
            is_expired: written.until(*seen) >= entry.ttl.get(),
        };
        self.records.iter().map(seen).collect()
    }
}
