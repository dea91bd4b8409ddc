//! What a campaign makes of a look at slots.

use super::{AcquireError, Campaign, CampaignStep, Terms, view::View};
use crate::{ReadError, Slot};
use vvm_clock::Instant;

impl Campaign {
    /// A slot that was not read stays as it was last seen, and the campaign goes on with the others.
    pub(super) fn scanned(
        &mut self,
        now: Instant,
        seen: &[Option<Slot>],
        outcome: Result<(), ReadError>,
    ) -> CampaignStep {
        self.is_partial = outcome.is_err();
        match outcome {
            Ok(()) => {}
            Err(ReadError::Unavailable(cause)) if seen.iter().any(Option::is_some) => {
                self.last_failure = Some(cause.to_string());
            }
            Err(error) => return self.read_failed(now, error),
        }
        for (view, slot) in self.views.iter_mut().zip(seen) {
            if let Some(slot) = slot {
                view.see(slot, now);
            }
        }
        // A storage slower than our polls is left in peace between two of them.
        self.next_scan = self.next_scan.max(now.after(self.terms.poll / 4));
        self.heeds_hints_at = now.after(Terms::HINT_GAP);
        self.act(now)
    }

    /// A linearizable look at a slot that seemed to go back in time: if it really did, the storage has lost
    /// writes, and a leader by them may still be at work.
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

    /// Takes in an answer that can't be stale.
    pub(super) fn take_in(&mut self, slot: usize, found: &Slot, now: Instant) -> Result<(), AcquireError> {
        let Some(view) = self.views.get_mut(slot) else { return Ok(()) };
        let seen = view.epoch();
        if found.last_epoch() < seen {
            return Err(AcquireError::EpochWentBack { seen, found: found.last_epoch() });
        }
        if !view.see(found, now) {
            // Within one epoch: no other candidate can have led, so observing starts anew.
            *view = View::default();
            view.see(found, now);
        }
        Ok(())
    }
}
