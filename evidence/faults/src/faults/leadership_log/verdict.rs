//! The verdict: compares all leaderships, and computes the share of the time with a leader.

use super::LeadershipLog;
use crate::faults::SLOTS;
use std::time::Duration;
use vvm_clock::Instant;
use vvm_storage::SlotNumber;

impl LeadershipLog {
    /// Compares every two leaderships, after all have ended. Returns the number of leaderships.
    pub(in super::super) fn judge(&self) -> usize {
        let mut log = self.log();
        let spans = &log.spans;
        let pairs = spans
            .iter()
            .enumerate()
            .flat_map(|(index, one)| spans[..index].iter().filter_map(move |other| one.conflict(other)));
        let conflicts: Vec<_> = pairs.collect();
        let count = spans.len();
        for conflict in conflicts {
            log.violates(conflict);
        }
        count
    }

    /// Returns the share of `from..until` in which a slot was led, on average.
    pub(in super::super) fn led(&self, from: Instant, until: Instant) -> f64 {
        let led: Duration = self.log().spans.iter().map(|span| span.within(from, until)).sum();
        led.as_secs_f64() / from.until(until).as_secs_f64() / f64::from(SLOTS.get())
    }

    /// Returns how long after `since` every slot had a leader; `None` if a slot had none yet.
    pub(in super::super) fn recovered(&self, since: Instant) -> Option<Duration> {
        let log = self.log();
        let first = SlotNumber::all(SLOTS).map(|slot| {
            let later = log.spans.iter().filter(|span| span.slot == slot && span.acts_until() > since);
            later.map(|span| since.until(span.began)).min()
        });
        first.collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}
