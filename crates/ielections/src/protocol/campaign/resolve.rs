use super::{Campaign, CampaignPhase, CampaignStep, ClaimCondition, Intent, Target, WonSlot};
use crate::{AcquireError, ReadError, Slot, WriteError, protocol::lease::Attempt};
use vvm_clock::Instant;

impl Campaign {
    /// Handles the answer to an attempt; `None` means that it applied.
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
            // `abandon` returns the attempt, so that the engine tries to delete its record.
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

    /// Handles a linearizable answer: it shows which of our attempts applied (I7).
    fn resolve(&mut self, now: Instant, slot: &Slot, refused: bool) -> CampaignStep {
        let Some(target) = &mut self.target else { return self.decide(now) };
        target.unread = false;
        if let Some(attempt) = target.attempts.shown_by(slot).cloned() {
            return self.confirmed(now, attempt);
        }
        if !refused && target.basis.stands_in(slot) {
            // Undecided: the write may still be applied. Retry on the same condition, never on another slot.
            return self.pause(now);
        }
        // Epochs rise and versions are unique, so the condition fails for good: no attempt can apply any more.
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

    /// Handles an attempt that applied. It counts from its send; if that is long ago, it is renewed before work starts.
    fn confirmed(&mut self, now: Instant, attempt: Attempt) -> CampaignStep {
        let Some(target) = &mut self.target else { return self.decide(now) };
        target.attempts.settle();
        let slot = target.slot;
        // A lease numbers its writes from the one that it begins with, so that must be the last.
        let is_last = attempt.entry.version.write == target.last_write;
        if is_last && self.timing.is_fresh(attempt.sent_at, now) {
            self.target = None;
            self.phase = CampaignPhase::Over;
            return CampaignStep::Won(WonSlot { slot, entry: attempt.entry, sent_at: attempt.sent_at });
        }
        target.basis = ClaimCondition::Own(attempt.entry);
        self.queue(Intent::Attempt)
    }

    fn reconsider(&mut self) {
        let free =
            |target: &Target| target.attempts.is_empty() && !matches!(target.basis, ClaimCondition::Own(_));
        if self.target.as_ref().is_some_and(free) {
            self.target = None;
        }
    }
}

impl ClaimCondition {
    fn stands_in(&self, slot: &Slot) -> bool {
        match (self, slot) {
            (Self::Vacant(vacant), Slot::Vacant(found)) => vacant == found,
            (Self::Expired(entry) | Self::Own(entry), Slot::Held { entry: found, .. }) => {
                entry.is_same_write(found)
            }
            (Self::Vacant(_), Slot::Held { .. }) | (Self::Expired(_) | Self::Own(_), Slot::Vacant(_)) => {
                false
            }
        }
    }
}
