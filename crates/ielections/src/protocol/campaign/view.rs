//! [`SlotObservation`]: what a candidate has seen of one slot, and when. A version was written before it was seen. So
//! it has expired once the observer's own clock has shown it unchanged for its writer's TTL (I5).

use super::{AcquireError, Campaign, CampaignStep, ScanAnswer};
use crate::{Entry, Epoch, ReadError, Slot, Terms, Timing, Vacant};
use vvm_clock::Instant;

#[derive(Clone, Hash, Debug, Default)]
pub(super) struct SlotObservation {
    state: SlotState,
    /// The storage showed an older state than before. A stale read may do that, a linearizable one must not.
    pub(super) doubtful: bool,
    /// A renewal or a new leader was seen: a leader was alive while this candidate observed the slot.
    pub(super) alive: bool,
    /// The storage lost the writes of a leader that may still work, so no age that it proves counts.
    is_restored: bool,
}

#[derive(Clone, Hash, Debug, Default)]
enum SlotState {
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
pub(super) enum ClaimableState {
    Vacant(Vacant),
    Expired(Entry),
}

impl SlotObservation {
    /// Notes an answer that arrived at `now`. Returns `false` if it is older than what was seen before.
    pub(super) fn see(&mut self, slot: &Slot, now: Instant) -> bool {
        if self.is_older(slot) {
            self.doubtful = true;
            return false;
        }
        self.doubtful = false;
        match slot {
            Slot::Vacant(vacant) => self.state = SlotState::Vacant(*vacant),
            Slot::Held { entry, proven_age } => {
                // A proven age only brings the first sight forward.
                let proven_age = proven_age.filter(|_| !self.is_restored);
                let written_before = now.before(proven_age.unwrap_or_default());
                match &mut self.state {
                    SlotState::Held { entry: known, first_seen } if known.is_same_write(entry) => {
                        *first_seen = written_before.min(*first_seen);
                    }
                    state => {
                        // After the first read: it was written since the read before.
                        let is_first = matches!(state, SlotState::Unseen);
                        self.alive |= !is_first;
                        self.is_restored &= is_first;
                        *state = SlotState::Held { entry: entry.clone(), first_seen: written_before };
                    }
                }
            }
        }
        true
    }

    #[cfg(feature = "testing")]
    pub(super) fn rebase(&mut self, to: &mut dyn crate::protocol::Rebase) {
        match &mut self.state {
            SlotState::Unseen => {}
            SlotState::Vacant(vacant) => vacant.last_epoch.iter_mut().for_each(|epoch| to.epoch(epoch)),
            SlotState::Held { entry, first_seen } => {
                to.entry(entry);
                to.since(first_seen);
            }
        }
    }

    fn is_older(&self, slot: &Slot) -> bool {
        match (&self.state, slot) {
            (SlotState::Unseen, _) => false,
            (SlotState::Vacant(known), Slot::Vacant(found)) => found.last_epoch < known.last_epoch,
            // A vacant slot of the same epoch comes after every record of that epoch.
            (SlotState::Vacant(known), Slot::Held { entry, .. }) => Some(entry.epoch) <= known.last_epoch,
            (SlotState::Held { entry: known, .. }, Slot::Vacant(found)) => {
                found.last_epoch < Some(known.epoch)
            }
            (SlotState::Held { entry: known, .. }, Slot::Held { entry, .. }) => {
                entry.age_order() < known.age_order()
            }
        }
    }

    pub(super) fn epoch(&self) -> Option<Epoch> {
        match &self.state {
            SlotState::Unseen => None,
            SlotState::Vacant(vacant) => vacant.last_epoch,
            SlotState::Held { entry, .. } => Some(entry.epoch),
        }
    }

    pub(super) fn opening(&self, now: Instant) -> Option<ClaimableState> {
        match &self.state {
            SlotState::Unseen => None,
            SlotState::Vacant(vacant) => Some(ClaimableState::Vacant(*vacant)),
            SlotState::Held { entry, first_seen } => {
                let expired = now >= first_seen.after(entry.ttl.get());
                expired.then(|| ClaimableState::Expired(entry.clone()))
            }
        }
    }

    pub(super) fn opens_at(&self) -> Instant {
        match &self.state {
            SlotState::Unseen => Instant::NEVER,
            SlotState::Vacant(_) => Instant::ORIGIN,
            SlotState::Held { entry, first_seen } => first_seen.after(entry.ttl.get()),
        }
    }

    /// Returns until when no renewal is due: the past for a slot that is vacant or unseen. A later renewal is seen
    /// within a poll. An early one, or one by a clock that is over 1 % fast, is seen late. Then the take-over after it
    /// is late, too, which is safe (I5).
    pub(super) fn quiet_until(&self) -> Instant {
        match &self.state {
            SlotState::Held { entry, first_seen } => {
                first_seen.after(Timing::new(entry.ttl).soonest_renewal())
            }
            SlotState::Unseen | SlotState::Vacant(_) => Instant::ORIGIN,
        }
    }

    pub(super) fn holder(&self) -> Option<&Entry> {
        match &self.state {
            SlotState::Held { entry, .. } => Some(entry),
            SlotState::Unseen | SlotState::Vacant(_) => None,
        }
    }
}

impl Campaign {
    /// Handles the answer to a scan. A slot that was not read stays as it was last seen.
    pub(super) fn scanned(&mut self, now: Instant, scanned: ScanAnswer) -> CampaignStep {
        let ScanAnswer { seen, outcome, hints_follow } = scanned;
        self.is_partial = outcome.is_err();
        match outcome {
            Ok(()) => {}
            Err(ReadError::Unavailable(cause)) if seen.iter().any(Option::is_some) => {
                self.last_failure = Some(cause.to_string());
            }
            Err(error) => return self.read_failed(now, error),
        }
        for (view, slot) in self.views.iter_mut().zip(&seen) {
            if let Some(slot) = slot {
                view.see(slot, now);
            }
        }
        // A storage that is slower than the polls gets a pause between two of them.
        self.next_scan = self.next_scan.max(now.after(self.terms.poll / 4));
        if hints_follow && !self.is_partial {
            let quiet_until =
                self.views.iter().map(SlotObservation::quiet_until).min().unwrap_or(Instant::ORIGIN);
            self.next_scan = self.next_scan.max(quiet_until.min(now.after(Terms::LONGEST_QUIET)));
        }
        self.hints_allowed_at = now.after(Terms::HINT_GAP);
        self.act(now)
    }

    /// Handles the linearizable read of a slot that seemed to go back in time. If it did, the storage has
    /// lost writes, and the leader that made them may still be at work.
    pub(super) fn verified(
        &mut self,
        now: Instant,
        slot: usize,
        outcome: Result<Slot, ReadError>,
    ) -> CampaignStep {
        match outcome {
            Ok(found) => match self.take_in(slot, &found, now) {
                Ok(()) => self.act(now),
                Err(error) => self.fail(error),
            },
            Err(error) => self.read_failed(now, error),
        }
    }

    pub(super) fn take_in(&mut self, slot: usize, found: &Slot, now: Instant) -> Result<(), AcquireError> {
        let Some(view) = self.views.get_mut(slot) else { return Ok(()) };
        let seen = view.epoch();
        if found.last_epoch() < seen {
            return Err(AcquireError::EpochWentBack { seen, found: found.last_epoch() });
        }
        if !view.see(found, now) {
            // The storage has lost renewals. No other candidate led in this epoch, so the observation starts anew.
            *view = SlotObservation { is_restored: true, ..SlotObservation::default() };
            view.see(found, now);
        }
        Ok(())
    }
}
