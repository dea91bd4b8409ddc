//! One slot with its history, and the times of its leaderships (I1).

use super::Moment;
use ielections::{Epoch, Slot, Vacant};

/// The slot.
#[derive(Debug)]
pub(crate) struct Place {
    /// All states so far; the last one is current.
    pub(crate) history: Vec<Slot>,
    pub(crate) terms: Vec<Term>,
}

/// A leadership, and until when its leader can act: until it stops or is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) epoch: Epoch,
    pub(crate) ends: Moment,
}

impl Default for Place {
    fn default() -> Self {
        Self { history: vec![Slot::Vacant(Vacant::default())], terms: Vec::new() }
    }
}

impl Place {
    pub(crate) fn slot(&self) -> &Slot {
        // Never empty: it begins with one state and only grows.
        &self.history[self.history.len() - 1]
    }

    /// The current state or an earlier one, as a stale scan shows it.
    pub(crate) fn stale(&self, by: usize) -> &Slot {
        &self.history[self.history.len() - 1 - by.min(self.history.len() - 1)]
    }

    /// Why no candidate can begin to lead under `epoch` now, if so.
    pub(crate) fn objection(&self, now: Moment, epoch: Epoch) -> Option<String> {
        let overlapping = self.terms.iter().find(|term| term.ends > now);
        if let Some(term) = overlapping {
            return Some(format!(
                "two leaders: {epoch:?} begins {} ns before {:?} ends",
                term.ends - now,
                term.epoch
            ));
        }
        let not_after = self.terms.iter().find(|term| term.epoch >= epoch);
        not_after.map(|term| format!("{epoch:?} after {:?}", term.epoch))
    }
}
