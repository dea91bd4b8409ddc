//! [`Slots`]: the state of each slot as last seen, and the changes that a look shows.
//!
//! A renewal is a record whose version differs from that of the look before. It was written at some moment
//! between the two, which is known better only if the storage proves the age. What is shown counts from the
//! later end: "at least so long ago".

use super::{
    change::{Change, Record, What},
    look::{Look, Paused},
};
use ielections::{ReadError, Slot};
use std::{collections::BTreeMap, time::Duration};
use vvm_clock::Instant;
use vvm_host::operate::InspectError;

/// After so many looks in a row at an older state, the storage went back. Fewer may be a replica that lags.
const BEHIND: u32 = 3;

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Slots {
    seen: BTreeMap<u32, Seen>,
    pub(super) answered: Option<Instant>,
    /// Why the last look failed, if it did.
    pub(super) failure: Option<String>,
    pub(super) paused: Option<Paused>,
}

/// What was seen of one slot.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) slot: Slot,
    /// The latest moment at which its state can have been written.
    pub(super) written: Instant,
    /// Whether that write was seen. If not, it may be much older.
    pub(super) moved: bool,
    overdue: bool,
    behind: u32,
}

impl Slots {
    /// Returns all slots in order.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (u32, &Seen)> {
        self.seen.iter().map(|(number, seen)| (*number, seen))
    }

    /// Adds a look, and returns the changes that it shows. A failed look is a change.
    ///
    /// # Errors
    /// If the storage refuses for good before any look succeeded.
    pub(super) fn changes(&mut self, look: Look) -> Result<Vec<Change>, InspectError> {
        let mut whats = Vec::new();
        match look.found {
            Ok(found) => {
                let is_first = self.answered.replace(look.at).is_none();
                if self.failure.take().is_some() {
                    whats.push((None, What::ReadableAgain));
                }
                whats.extend(self.saw_pause(found.paused).map(|what| (None, what)));
                let was_led = found.slots.iter().any(|(_, slot)| slot.last_epoch().is_some());
                if is_first && look.settled.is_none() && !was_led {
                    whats.push((None, What::Unknown));
                }
                for (number, slot) in found.slots {
                    whats.extend(self.saw(number, slot, look.at).map(|what| (Some(number), what)));
                }
            }
            Err(cause @ (ReadError::Fatal(_) | ReadError::Replaced(_))) if self.answered.is_none() => {
                return Err(InspectError::Read(cause));
            }
            Err(cause) => {
                let cause = cause.to_string();
                if self.failure.replace(cause.clone()).is_none() {
                    whats.push((None, What::Unreadable { cause }));
                }
            }
        }
        Ok(whats.into_iter().map(|(slot, what)| Change { at: look.wall, slot, what }).collect())
    }

    fn saw_pause(&mut self, paused: Option<Paused>) -> Option<What> {
        let before = std::mem::replace(&mut self.paused, paused);
        match &self.paused {
            Some(paused) if before.as_ref() != Some(paused) => Some(What::Paused { by: paused.by.clone() }),
            None if before.is_some() => Some(What::Resumed),
            _ => None,
        }
    }

    fn saw(&mut self, number: u32, slot: Slot, now: Instant) -> Option<What> {
        let Some(seen) = self.seen.get_mut(&number) else {
            let what = match &slot {
                Slot::Held { entry, .. } => What::Held(Record::of(entry)),
                Slot::Vacant(vacant) => What::free(vacant.last_epoch),
            };
            self.seen.insert(number, Seen::of(slot, now, false));
            return Some(what);
        };
        if is_older(&slot, &seen.slot) {
            seen.behind += 1;
            if seen.behind < BEHIND {
                return None;
            }
            let [from_epoch, epoch] =
                [&seen.slot, &slot].map(|slot| slot.last_epoch().map(|epoch| epoch.get()));
            *seen = Seen::of(slot, now, false);
            return Some(What::WentBack { from_epoch, epoch });
        }
        seen.behind = 0;
        if slot.is_as_expected(&seen.slot) {
            return seen.falls_overdue(now);
        }
        let before = std::mem::replace(seen, Seen::of(slot, now, true));
        match (before.slot.entry(), seen.slot.entry()) {
            (Some(then), Some(entry)) if then.is_of(entry.incarnation(), entry.epoch) => {
                before.overdue.then(|| What::RenewsAgain { holder: entry.holder.to_string() })
            }
            (then, Some(entry)) => {
                let after = then.map(|then| then.holder.to_string());
                Some(What::Leads { record: Record::of(entry), after })
            }
            (_, None) => seen.slot.last_epoch().map(|epoch| What::Released { epoch: epoch.get() }),
        }
    }
}

impl Seen {
    fn of(slot: Slot, now: Instant, moved: bool) -> Self {
        let proven_age = match &slot {
            Slot::Held { proven_age, .. } => proven_age.unwrap_or_default(),
            Slot::Vacant(_) => Duration::ZERO,
        };
        Self { slot, written: now.before(proven_age), moved, overdue: false, behind: 0 }
    }

    /// Returns what is left of the TTL, and the TTL; none for a free slot.
    pub(super) fn left(&self, now: Instant) -> Option<(Duration, Duration)> {
        let ttl = self.slot.entry()?.ttl.get();
        Some((ttl.saturating_sub(self.written.until(now)), ttl))
    }

    fn falls_overdue(&mut self, now: Instant) -> Option<What> {
        let entry = self.slot.entry()?;
        let silent = self.written.until(now);
        if self.overdue || silent < entry.ttl.get() {
            return None;
        }
        self.overdue = true;
        let silent_ms = silent.as_millis() as u64;
        Some(What::Overdue { holder: entry.holder.to_string(), silent_ms })
    }
}

/// Returns whether `slot` certainly precedes the state `known`.
fn is_older(slot: &Slot, known: &Slot) -> bool {
    match (slot.entry(), known.entry()) {
        (Some(entry), Some(known)) => entry.age_order() < known.age_order(),
        // A release keeps the epoch of the leadership that it ends.
        (Some(entry), None) => Some(entry.epoch) <= known.last_epoch(),
        (None, _) => slot.last_epoch() < known.last_epoch(),
    }
}

#[cfg(test)]
pub(super) mod tests;
