//! How a campaign handles the answer to a read of its slots.

use super::{AcquireError, Campaign, CampaignStep, Scanned, Terms, view::View};
use crate::{ReadError, Slot};
use vvm_clock::Instant;

impl Campaign {
    /// Handles the answer to a scan. A slot that was not read stays as it was last seen.
    pub(super) fn scanned(&mut self, now: Instant, scanned: Scanned) -> CampaignStep {
        let Scanned { seen, outcome, hints_follow } = scanned;
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
            let quiet_until = self.views.iter().map(View::quiet_until).min().unwrap_or(Instant::ORIGIN);
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

    /// Notes a linearizable answer.
    pub(super) fn take_in(&mut self, slot: usize, found: &Slot, now: Instant) -> Result<(), AcquireError> {
        let Some(view) = self.views.get_mut(slot) else { return Ok(()) };
        let seen = view.epoch();
        if found.last_epoch() < seen {
            return Err(AcquireError::EpochWentBack { seen, found: found.last_epoch() });
        }
        if !view.see(found, now) {
            // Within one epoch no other candidate can have led, so the observation starts anew.
            *view = View::default();
            view.see(found, now);
        }
        Ok(())
    }
}
