//! The leaders of other slots, as this candidate last saw them. Only for people.

use ielections::{Entry, Epoch, Holder, Slot};
use jiff::{SignedDuration, Timestamp};
use std::{collections::BTreeMap, fmt, time::Duration};
use vvm_clock::{Instant, SystemWallClock, WallClock as _};

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
        write!(out, "slot {slot} {state} {holder}, epoch {epoch}{}", EpochTime(*epoch))
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

/// A leadership is not older than this. Epochs that would make it older do not come from a clock.
const OLDEST: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);

/// `, since 2026-11-22T09:00:00Z`, or nothing if the epoch does not tell. Only for people: an epoch is the
/// wall clock of the claim, except after a clock that went back.
pub(crate) struct EpochTime(pub(crate) Epoch);

impl fmt::Display for EpochTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |since: Duration| Timestamp::default().checked_add(since).ok();
        let (Some(began), Some(now)) =
            (at(Duration::from_millis(self.0.get())), at(SystemWallClock.since_unix_epoch()))
        else {
            return Ok(());
        };
        let age = now.duration_since(began);
        if age < SignedDuration::from_secs(-60) || age > OLDEST {
            return Ok(());
        }
        write!(out, ", since {began:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_epochs_near_the_present_tell_the_time() {
        let now = u64::try_from(SystemWallClock.since_unix_epoch().as_millis()).unwrap();
        let since = |millis| EpochTime(Epoch::new(millis).unwrap()).to_string();
        let shown = since(now - 3_600_000);
        assert!(shown.starts_with(", since 20") && shown.ends_with('Z'), "{shown}");
        for strange in [7, now + 3_600_000, now / 2, Epoch::MAX] {
            assert_eq!(since(strange), "");
        }
    }
}
