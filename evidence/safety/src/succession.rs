//! Time without a worker after a leader's guardian, host, or both were killed. Only a host that outlives its
//! guardian can hand over; otherwise the next leader waits for a TTL.

use crate::{fault::Target, verdict::WorkSpan};
use std::{collections::BTreeMap, fmt, time::Duration};
use vvm_clock::Instant;

/// By target; times are sorted.
pub(crate) struct Successions(BTreeMap<Target, Vec<Duration>>);

impl Successions {
    /// Returns the time from each kill to the first sign of the next worker, if there was one.
    pub(crate) fn of(leader_kills: &[(Instant, Target)], spans: &[WorkSpan]) -> Self {
        let mut took = BTreeMap::<Target, Vec<Duration>>::new();
        for (at, target) in leader_kills {
            let next = spans.iter().map(|span| span.first).filter(|first| first > at).min();
            took.entry(*target).or_default().extend(next.map(|first| at.until(first)));
        }
        took.values_mut().for_each(|took| took.sort());
        Self(took)
    }
}

impl fmt::Display for Successions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("until the next worker ran (median)")?;
        for (target, took) in &self.0 {
            if let Some(median) = took.get(took.len() / 2) {
                write!(out, "; {target} killed: {:.2} s of {}", median.as_secs_f64(), took.len())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_from_a_kill_to_the_next_new_worker() {
        let at = |millis: u64| Instant::ORIGIN.after(Duration::from_millis(millis));
        let spans = [WorkSpan::between(at(0), at(100)), WorkSpan::between(at(400), at(900))];
        let leader_kills = [(at(100), Target::Guardian), (at(95), Target::Host), (at(900), Target::Host)];
        let text = Successions::of(&leader_kills, &spans).to_string();
        assert!(text.ends_with("; guardian killed: 0.30 s of 1; host killed: 0.30 s of 1"), "{text}");
    }
}
