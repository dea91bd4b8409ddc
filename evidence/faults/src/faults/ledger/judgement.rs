//! The verdict: all leaderships against each other, and the share of the time with a leader.

use super::Ledger;
use crate::faults::SLOTS;
use std::time::Duration;
use vvm_clock::Instant;
use vvm_storage::SlotNumber;

impl Ledger {
    /// Looks at every two leaderships, now that all have ended; how many there were.
    pub(in super::super) fn judge(&self) -> usize {
        let mut book = self.book();
        let spans = &book.spans;
        let pairs = spans
            .iter()
            .enumerate()
            .flat_map(|(index, one)| spans[..index].iter().filter_map(move |other| one.conflict(other)));
        let conflicts: Vec<_> = pairs.collect();
        let count = spans.len();
        for conflict in conflicts {
            book.violates(conflict);
        }
        count
    }

    /// How much of `from..until` a slot was led, on average.
    pub(in super::super) fn led(&self, from: Instant, until: Instant) -> f64 {
        let led: Duration = self.book().spans.iter().map(|span| span.within(from, until)).sum();
        led.as_secs_f64() / from.until(until).as_secs_f64() / f64::from(SLOTS.get())
    }

    /// How long after `since` every slot had had a leader; `None` if one has had none yet.
    pub(in super::super) fn recovered(&self, since: Instant) -> Option<Duration> {
        let book = self.book();
        let first = SlotNumber::all(SLOTS).map(|slot| {
            let later = book.spans.iter().filter(|span| span.slot == slot && span.acts_until() > since);
            later.map(|span| since.until(span.began)).min()
        });
        first.collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}
