//! [`View`]: what a candidate has seen of one slot, and when: expiry by observation (I5).
//!
//! A version that is seen was written before. If it stays unchanged for its writer's TTL, then its record has
//! expired. Only the observer's own clock measures that.

use crate::{Entry, Epoch, Slot, Timing, Vacant};
use vvm_clock::Instant;

/// One slot as one candidate has seen it.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    state: State,
    /// The storage showed an older state than before. A stale read may do that, a linearizable one must not.
    pub(super) doubtful: bool,
    /// A renewal or a new leader was seen: a leader was alive while this candidate observed the slot.
    pub(super) alive: bool,
}

#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Unseen,
    Vacant(Vacant),
    Held {
        entry: Entry,
        first_seen: Instant,
    },
}

/// A claim that may succeed now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Opening {
    Vacant(Vacant),
    Expired(Entry),
}

impl View {
    /// Notes an answer that arrived at `now`. Returns `false` if it is older than what was seen before.
    pub(super) fn see(&mut self, slot: &Slot, now: Instant) -> bool {
        if self.is_older(slot) {
            self.doubtful = true;
            return false;
        }
        self.doubtful = false;
        match slot {
            Slot::Vacant(vacant) => self.state = State::Vacant(*vacant),
            Slot::Held { entry, proven_age } => {
                // A proven age only brings the first sight forward.
                let written_before = now.before(proven_age.unwrap_or_default());
                match &mut self.state {
                    State::Held { entry: known, first_seen } if known.version == entry.version => {
                        *first_seen = written_before.min(*first_seen);
                    }
                    state => {
                        // It was written since the last read.
                        self.alive |= !matches!(state, State::Unseen);
                        *state = State::Held { entry: entry.clone(), first_seen: written_before };
                    }
                }
            }
        }
        true
    }

    fn is_older(&self, slot: &Slot) -> bool {
        match (&self.state, slot) {
            (State::Unseen, _) => false,
            (State::Vacant(known), Slot::Vacant(found)) => found.last_epoch < known.last_epoch,
            // A vacant slot of the same epoch comes after every record of that epoch.
            (State::Vacant(known), Slot::Held { entry, .. }) => Some(entry.epoch) <= known.last_epoch,
            (State::Held { entry: known, .. }, Slot::Vacant(found)) => found.last_epoch < Some(known.epoch),
            (State::Held { entry: known, .. }, Slot::Held { entry, .. }) => {
                entry.age_order() < known.age_order()
            }
        }
    }

    /// The largest epoch seen.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        match &self.state {
            State::Unseen => None,
            State::Vacant(vacant) => vacant.last_epoch,
            State::Held { entry, .. } => Some(entry.epoch),
        }
    }

    /// Returns the claim that may succeed now, if there is one.
    pub(super) fn opening(&self, now: Instant) -> Option<Opening> {
        match &self.state {
            State::Unseen => None,
            State::Vacant(vacant) => Some(Opening::Vacant(*vacant)),
            State::Held { entry, first_seen } => {
                let expired = now >= first_seen.after(entry.ttl.get());
                expired.then(|| Opening::Expired(entry.clone()))
            }
        }
    }

    /// The earliest instant at which a claim may succeed.
    pub(super) fn opens_at(&self) -> Instant {
        match &self.state {
            State::Unseen => Instant::NEVER,
            State::Vacant(_) => Instant::ORIGIN,
            State::Held { entry, first_seen } => first_seen.after(entry.ttl.get()),
        }
    }

    /// Until when no renewal is due. In the past for a slot that is vacant, unseen or doubtful.
    ///
    /// A renewal that is written later shows in one of the polls that begin then: it is seen within a poll.
    /// One that was written early, or by a clock that is over 1 % fast, is seen late. A take-over after it
    /// comes late, too, which is safe (I5).
    pub(super) fn quiet_until(&self) -> Instant {
        match &self.state {
            State::Held { entry, first_seen } if !self.doubtful => {
                first_seen.after(Timing::of(entry.ttl).soonest_renewal())
            }
            State::Held { .. } | State::Unseen | State::Vacant(_) => Instant::ORIGIN,
        }
    }

    /// The record, as last seen.
    pub(super) fn holder(&self) -> Option<&Entry> {
        match &self.state {
            State::Held { entry, .. } => Some(entry),
            State::Unseen | State::Vacant(_) => None,
        }
    }
}
