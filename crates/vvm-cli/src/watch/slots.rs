//! [`Slots`]: what was seen of each slot, look by look, and what that tells.
//!
//! From outside, a renewal is a record whose version has moved since the look before. When it was written is
//! known only to have been between the two, or more exactly where the storage can prove its age; what is
//! shown counts from the later end, so that it says "at least so long ago" and never claims more.

use super::{
    Look, Paused,
    change::{Change, Record, What},
};
use ielections::{Entry, ReadError, Slot};
use std::{collections::BTreeMap, time::Duration};
use vvm_clock::Instant;
use vvm_host::operate::InspectError;

/// How many looks in a row must find an older state than before, until it is no replica that is behind.
const BEHIND: u32 = 3;

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Slots {
    seen: BTreeMap<u32, Seen>,
    answered: Option<Instant>,
    trouble: Option<String>,
    paused: Option<Paused>,
}

/// What was seen of one slot.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) slot: Slot,
    /// When what stands there had been written at the latest.
    pub(super) written: Instant,
    /// Whether that is a renewal or a claim that we saw happen, or may be much longer ago.
    pub(super) moved: bool,
    overdue: bool,
    behind: u32,
}

impl Slots {
    /// All of them, in order.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (u32, &Seen)> {
        self.seen.iter().map(|(number, seen)| (*number, seen))
    }

    /// When a look was last answered.
    pub(super) fn answered(&self) -> Option<Instant> {
        self.answered
    }

    /// Why no look is answered, if none is.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The pause that stands, as far as the last look that was answered tells.
    pub(super) fn paused(&self) -> Option<&Paused> {
        self.paused.as_ref()
    }

    /// What a look tells. A storage that fails is a change, unless it refuses from the beginning.
    pub(super) fn changes(&mut self, look: Look) -> Result<Vec<Change>, InspectError> {
        let mut whats = Vec::new();
        match look.found {
            Ok(found) => {
                let is_first = self.answered.replace(look.at).is_none();
                if self.trouble.take().is_some() {
                    whats.push((None, What::Works));
                }
                whats.extend(self.saw_pause(found.paused).map(|what| (None, what)));
                let is_known =
                    look.settled.is_some() || found.slots.iter().any(|(_, slot)| slot.last_epoch().is_some());
                if is_first && !is_known {
                    whats.push((None, What::Unknown));
                }
                for (number, slot) in found.slots {
                    whats.extend(self.saw(number, slot, look.at).map(|what| (Some(number), what)));
                }
            }
            Err(cause @ (ReadError::Fatal(_) | ReadError::Replaced(_))) if self.answered.is_none() => {
                return Err(InspectError::Read(cause));
            }
            Err(cause) if self.trouble.is_some() => self.trouble = Some(cause.to_string()),
            Err(cause) => {
                self.trouble = Some(cause.to_string());
                whats.push((None, What::Trouble { cause: cause.to_string() }));
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
                Slot::Vacant(vacant) => What::Free { last_epoch: vacant.last_epoch },
            };
            self.seen.insert(number, Seen::of(slot, now, false));
            return Some(what);
        };
        if is_older(&slot, &seen.slot) {
            seen.behind += 1;
            if seen.behind < BEHIND {
                return None;
            }
            let (from, to) = (seen.slot.last_epoch(), slot.last_epoch());
            *seen = Seen::of(slot, now, false);
            return Some(What::WentBack { from, to });
        }
        seen.behind = 0;
        if slot.is_as_expected(&seen.slot) {
            return seen.falls_overdue(now);
        }
        let before = std::mem::replace(seen, Seen::of(slot, now, true));
        match (before.slot.entry(), seen.slot.entry()) {
            (Some(then), Some(entry)) if then.is_of(entry.incarnation(), entry.epoch) => {
                before.overdue.then(|| What::RenewsAgain { holder: entry.holder.clone() })
            }
            (then, Some(entry)) => {
                Some(What::Leads { record: Record::of(entry), after: then.map(|then| then.holder.clone()) })
            }
            (_, None) => seen.slot.last_epoch().map(|epoch| What::Released { epoch }),
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

    /// How much of the TTL is left, as seen from here; none for a slot that nobody holds.
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
        Some(What::Overdue { holder: entry.holder.clone(), silent })
    }
}

impl Record {
    fn of(entry: &Entry) -> Self {
        Self { holder: entry.holder.clone(), epoch: entry.epoch, ttl: entry.ttl }
    }
}

/// Whether `slot` was certainly in this state before it was in the state `known`.
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
