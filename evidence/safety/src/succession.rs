//! Time without a worker after a leader's guardian, host, or both were killed. Only a host that outlives its
//! guardian can hand over; otherwise the next leader waits for a TTL.

use crate::{trouble::Victim, verdict::Spell};
use std::{collections::BTreeMap, fmt, time::Duration};
use vvm_clock::Instant;

/// By victim; times are sorted.
pub(crate) struct Successions(BTreeMap<Victim, Vec<Duration>>);

impl Successions {
    /// Returns the time from each kill to the first sign of the next worker, if there was one.
    pub(crate) fn of(blows: &[(Instant, Victim)], spells: &[Spell]) -> Self {
        let mut took = BTreeMap::<Victim, Vec<Duration>>::new();
        for (at, victim) in blows {
            let next = spells.iter().map(|spell| spell.first).filter(|first| first > at).min();
            took.entry(*victim).or_default().extend(next.map(|first| at.until(first)));
        }
        took.values_mut().for_each(|took| took.sort());
        Self(took)
    }
}

impl fmt::Display for Successions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("until the next worker ran (median)")?;
        for (victim, took) in &self.0 {
            if let Some(median) = took.get(took.len() / 2) {
                write!(out, "; {victim} killed: {:.2} s of {}", median.as_secs_f64(), took.len())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_up_to_the_next_one_that_was_not_there_yet() {
        let at = |millis: u64| Instant::ORIGIN.after(Duration::from_millis(millis));
        let spells = [Spell::between(at(0), at(100)), Spell::between(at(400), at(900))];
        let blows = [(at(100), Victim::Guardian), (at(95), Victim::Host), (at(900), Victim::Host)];
        let text = Successions::of(&blows, &spells).to_string();
        assert!(text.ends_with("; guardian killed: 0.30 s of 1; host killed: 0.30 s of 1"), "{text}");
    }
}
