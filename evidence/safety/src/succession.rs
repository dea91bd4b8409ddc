//! Time without a worker after a leader's guardian, host, or both were killed. A host releases for its killed
//! guardian, and a guardian for its killed host. If both are killed, the next leader waits for a TTL.

use crate::{fault::Target, verdict::WorkSpan};
use std::{collections::BTreeMap, fmt, time::Duration};
use vvm_clock::Instant;

/// By target; times are sorted.
pub(crate) struct Successions {
    took: BTreeMap<Target, Vec<Duration>>,
    ttl: Duration,
}

impl Successions {
    /// Returns the time from each kill to the first sign of the next worker, if there was one.
    pub(crate) fn of(leader_kills: &[(Instant, Target)], spans: &[WorkSpan], ttl: Duration) -> Self {
        let mut took = BTreeMap::<Target, Vec<Duration>>::new();
        for (at, target) in leader_kills {
            let next = spans.iter().map(|span| span.first).filter(|first| first > at).min();
            took.entry(*target).or_default().extend(next.map(|first| at.until(first)));
        }
        took.values_mut().for_each(|took| took.sort());
        Self { took, ttl }
    }

    /// Whether a fail-over needed a TTL. A record that is renewed each quarter of the TTL lasts for more than
    /// half of it; after a release a fail-over takes far less.
    fn needed_a_ttl(&self, took: Duration) -> bool {
        took > self.ttl / 2
    }
}

impl fmt::Display for Successions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("until the next worker ran (median)")?;
        for (target, took) in &self.took {
            if let Some(median) = took.get(took.len() / 2) {
                write!(out, "; {target} killed: {:.2} s of {}", median.as_secs_f64(), took.len())?;
            }
        }
        let all = || self.took.values().flatten();
        let (late, count) = (all().filter(|took| self.needed_a_ttl(**took)).count(), all().count());
        let share = 100.0 * late as f64 / count.max(1) as f64;
        write!(out, "; {late} of {count} fail-overs ({share:.1} %) needed a TTL")?;
        for (target, took) in &self.took {
            let late = took.iter().filter(|took| self.needed_a_ttl(**took)).count();
            write!(out, ", {target} {late} of {}", took.len())?;
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
        let text = Successions::of(&leader_kills, &spans, Duration::from_millis(601)).to_string();
        let medians = "; guardian killed: 0.30 s of 1; host killed: 0.30 s of 1; ";
        assert!(
            text.ends_with(&format!(
                "{medians}1 of 2 fail-overs (50.0 %) needed a TTL, guardian 0 of 1, host 1 of 1"
            )),
            "{text}"
        );
    }
}
