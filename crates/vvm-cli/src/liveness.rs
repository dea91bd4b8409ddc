//! Whether the leader in a record is alive, as far as an observer can prove it.

use ielections::{Entry, ReadError, Slot, TtlStorage as _};
use serde::Serialize;
use std::{fmt, slice, time::Duration};
use vvm_clock::Instant;
use vvm_storage::{ElectionKey, ElectionsTtlStorage};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Liveness {
    /// The record was written less than its TTL ago.
    Led,
    Free,
    /// The record has stood unchanged for its TTL: its leader is dead (I1), or about to find that it lost.
    Stale,
    /// There is a record, and nothing is known about its age yet.
    Held,
}

impl fmt::Display for Liveness {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Led => "led",
            Self::Free => "free",
            Self::Stale => "stale",
            Self::Held => "held",
        })
    }
}

/// Returns the slot, with the age that the clock of the storage's server shows if none is proven.
pub(crate) async fn dated_slot(storage: &ElectionsTtlStorage, key: &ElectionKey) -> Result<Slot, ReadError> {
    let mut slot = storage.get(key).await?;
    if let Slot::Held { proven_age: age @ None, .. } = &mut slot {
        *age = storage.shown_ages(slice::from_ref(key)).await?.into_iter().flatten().next();
    }
    Ok(slot)
}

#[derive(Clone, Default, Debug)]
pub(crate) struct Observation(Option<ObservedRecord>);

#[derive(Clone, Debug)]
struct ObservedRecord {
    entry: Entry,
    age: Duration,
    at: Instant,
    /// Whether it is known to have been written less than its TTL before the first look.
    is_dated: bool,
}

impl Observation {
    /// Adds an answer that arrived at `now`, and returns what all answers prove. A record ages from the answer that
    /// first showed it, or by the age that the storage proves (I5).
    pub(crate) fn add(&mut self, slot: &Slot, now: Instant) -> Liveness {
        let Slot::Held { entry, proven_age } = slot else {
            self.0 = None;
            return Liveness::Free;
        };
        let (observed, is_dated) = match &self.0 {
            Some(seen) if seen.entry.is_same_write(entry) => (seen.age + seen.at.until(now), seen.is_dated),
            // Written after the last look.
            Some(seen) => (Duration::ZERO, seen.at.until(now) < entry.ttl.get()),
            None => (Duration::ZERO, false),
        };
        let (age, is_dated) =
            (observed.max(proven_age.unwrap_or_default()), is_dated || proven_age.is_some());
        self.0 = Some(ObservedRecord { entry: entry.clone(), age, at: now, is_dated });
        self.liveness()
    }

    /// Adds the age that the clock of the storage's server shows, and returns what follows.
    pub(crate) fn add_shown_age(&mut self, age: Duration) -> Liveness {
        if let Some(seen) = &mut self.0 {
            (seen.age, seen.is_dated) = (seen.age.max(age), true);
        }
        self.liveness()
    }

    fn liveness(&self) -> Liveness {
        match &self.0 {
            None => Liveness::Free,
            Some(seen) if seen.age >= seen.entry.ttl.get() => Liveness::Stale,
            Some(seen) if seen.is_dated => Liveness::Led,
            Some(_) => Liveness::Held,
        }
    }

    pub(crate) fn record(&self) -> Option<&Entry> {
        self.0.as_ref().map(|seen| &seen.entry)
    }

    pub(crate) fn age(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |seen| seen.age)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ielections::{Epoch, Holder, Incarnation, Ttl, Vacant, Version};

    pub(crate) fn record(holder: &str, epoch: u64, write: u64) -> Entry {
        let version = Version { incarnation: Incarnation::from_bytes([epoch as u8; 16]), write };
        let (holder, epoch) = (Holder::new(holder).unwrap(), Epoch::new(epoch).unwrap());
        Entry { holder, version, ttl: Ttl::DEFAULT, epoch }
    }

    fn held(write: u64, age: Option<u64>) -> Slot {
        Slot::Held { entry: record("a", 1, write), proven_age: age.map(Duration::from_secs) }
    }

    fn prove(answers: &[(u64, Slot)]) -> Liveness {
        let mut observation = Observation::default();
        let at = |second: &u64| Instant::ORIGIN.after(Duration::from_secs(100 + second));
        answers.iter().map(|(second, slot)| observation.add(slot, at(second))).last().unwrap()
    }

    #[test]
    fn record_without_proven_age_is_held_until_it_changes_or_stands_for_its_ttl() {
        let free = Slot::Vacant(Vacant::default());
        assert_eq!(prove(&[(0, held(1, None)), (19, held(1, None))]), Liveness::Held);
        assert_eq!(prove(&[(0, held(1, None)), (20, held(1, None))]), Liveness::Stale);
        assert_eq!(prove(&[(0, held(1, None)), (15, held(2, None))]), Liveness::Led);
        assert_eq!(prove(&[(0, held(1, None)), (15, held(2, None)), (35, held(2, None))]), Liveness::Stale);
        assert_eq!(prove(&[(0, held(1, None)), (15, held(2, None)), (16, held(2, None))]), Liveness::Led);
        // It was written at any time since.
        assert_eq!(prove(&[(0, held(1, None)), (20, held(2, None))]), Liveness::Held);
        assert_eq!(prove(&[(0, held(1, None)), (1, free.clone())]), Liveness::Free);
        assert_eq!(prove(&[(0, held(1, None)), (1, free), (30, held(1, None))]), Liveness::Held);
    }

    #[test]
    fn proven_age_decides_at_once() {
        assert_eq!(prove(&[(0, held(1, Some(19)))]), Liveness::Led);
        assert_eq!(prove(&[(0, held(1, Some(20)))]), Liveness::Stale);
    }
}
