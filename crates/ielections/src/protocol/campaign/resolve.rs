//! What the answer to an attempt proves (I7), and what follows from it.

use super::{Basis, Campaign, CampaignStep, Intent, Phase, Target, Won};
use crate::{AcquireError, ReadError, Slot, WriteError, protocol::attempts::Attempt};
use vvm_clock::Instant;

impl Campaign {
    /// An attempt was answered; `None` means that it applied.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        outcome: Result<Option<Slot>, WriteError>,
    ) -> CampaignStep {
        let Some(target) = &mut self.target else { return self.decide(now) };
        match outcome {
            Ok(None) => match target.attempts.take_last() {
                Some(attempt) => self.confirmed(now, attempt),
                None => self.decide(now),
            },
            Ok(Some(slot)) => self.resolve(now, &slot, true),
            Err(WriteError::NotApplied(cause)) => {
                target.attempts.discard_last();
                self.last_failure = Some(cause.to_string());
                self.reconsider();
                self.pause(now)
            }
            Err(WriteError::Fatal(cause)) => {
                target.attempts.discard_last();
                self.fail(AcquireError::Refused(cause))
            }
            // What it may have left is deleted, should the storage come back.
            Err(WriteError::Replaced(cause)) => self.fail(AcquireError::Refused(cause)),
            Err(WriteError::Unknown(cause)) => {
                target.unread = true;
                self.last_failure = Some(cause.to_string());
                self.queue(Intent::ReadBack)
            }
        }
    }

    pub(super) fn read_back(&mut self, now: Instant, outcome: Result<Slot, ReadError>) -> CampaignStep {
        match outcome {
            Ok(slot) => self.resolve(now, &slot, false),
            // Still unresolved, and read again after a pause.
            Err(error) => self.read_failed(now, error),
        }
    }

    /// What a linearizable answer says about our attempts (I7).
    fn resolve(&mut self, now: Instant, slot: &Slot, refused: bool) -> CampaignStep {
        let Some(target) = &mut self.target else { return self.decide(now) };
        target.unread = false;
        if let Some(attempt) = target.attempts.shown_by(slot).cloned() {
            return self.confirmed(now, attempt);
        }
        if !refused && target.basis.stands_in(slot) {
            // Undecided: the write may land yet. Try again on the same condition; never another slot.
            return self.pause(now);
        }
        // The condition is gone for good (epochs rise, versions are unique): no attempt can land any more.
        let index = target.slot;
        self.target = None;
        if let Err(error) = self.take_in(index, slot, now) {
            return self.fail(error);
        }
        self.refusals += 1;
        if self.refusals > self.views.len() + 8 {
            return self.back_off(now);
        }
        self.decide(now)
    }

    /// An attempt of ours stands in the storage. It counts from its own send, and if that was too long ago,
    /// it is renewed before any work starts on it.
    fn confirmed(&mut self, now: Instant, attempt: Attempt) -> CampaignStep {
        let Some(target) = &mut self.target else { return self.decide(now) };
        target.attempts.settle();
        let slot = target.slot;
        // A lease counts its writes on from the one that it begins with, so that has to be the last.
        let is_last = attempt.entry.version.write == target.last_write;
        if is_last && self.timing.is_fresh(attempt.sent_at, now) {
            self.target = None;
            self.phase = Phase::Over;
            return CampaignStep::Won(Won { slot, entry: attempt.entry, sent_at: attempt.sent_at });
        }
        target.basis = Basis::Own(attempt.entry);
        self.queue(Intent::Attempt)
    }

    /// Without an unresolved attempt nothing binds the campaign to a slot: look at all of them again.
    fn reconsider(&mut self) {
        let free = |target: &Target| target.attempts.is_empty() && !matches!(target.basis, Basis::Own(_));
        if self.target.as_ref().is_some_and(free) {
            self.target = None;
        }
    }
}

impl Basis {
    /// Whether the condition of an attempt still holds.
    fn stands_in(&self, slot: &Slot) -> bool {
        match (self, slot) {
            (Self::Vacant(vacant), Slot::Vacant(found)) => vacant == found,
            (Self::Expired(entry) | Self::Own(entry), Slot::Held { entry: found, .. }) => {
                entry.version == found.version
            }
            (Self::Vacant(_), Slot::Held { .. }) | (Self::Expired(_) | Self::Own(_), Slot::Vacant(_)) => {
                false
            }
        }
    }
}
