//! The durations of reads and writes from here.
//!
//! Writes go to records of the doctor's own. Their name has a control character, so no candidate can lead it.
//! Each is released in the end, and used again by later doctors.

use crate::args::DoctorArgs;
use ielections::{
    Claim, Entropy as _, Entry, Epoch, Holder, Incarnation, OsEntropy, Slot, Swap, Ttl, TtlStorage as _,
    Vacant, Version,
};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use vvm_clock::{Clock, SystemWallClock, WallClock as _};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber};

/// How often each call is made.
const TRIALS: usize = 50;

/// After so long no further call of its kind is made.
const ENOUGH: Duration = Duration::from_secs(10);

/// How many doctors can measure at the same time.
const RECORDS: u32 = 8;

const NAME: &[u8] = b"\0vvm doctor";

/// The durations of calls.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Trips {
    /// Sorted.
    took: Vec<Duration>,
    /// Of the first call that failed.
    pub(super) failure: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Measured {
    pub(super) reads: Trips,
    pub(super) writes: Trips,
}

impl Trips {
    pub(super) fn count(&self) -> usize {
        self.took.len()
    }

    /// Returns a quantile by nearest rank; zero without calls.
    pub(super) fn quantile(&self, percent: usize) -> Duration {
        let rank = (self.took.len() * percent).div_ceil(100).max(1);
        self.took.get(rank - 1).copied().unwrap_or_default()
    }

    fn of(mut took: Vec<Duration>, failure: Option<String>) -> Self {
        took.sort_unstable();
        Self { took, failure }
    }
}

/// Measures reads and conditional writes. A failure is part of the result.
pub(super) async fn measure(
    storage: &ElectionsTtlStorage,
    clock: &Arc<dyn Clock>,
    args: &DoctorArgs,
) -> Measured {
    let first = record(1);
    let read = async || storage.get(&first).await.map(drop).map_err(|failure| failure.to_string());
    let reads = repeat(clock, read).await;
    let writes = match claim(storage, args.ttl).await {
        Ok((key, mut held)) => {
            let writes = repeat(clock, async || {
                let version = Version { write: held.version.write + 1, ..held.version };
                let next = held.renewed(version);
                match storage.compare_and_swap(&key, &held, &next).await {
                    Ok(Swap::Swapped) => held = next,
                    Ok(Swap::Mismatch(_)) => {
                        return Err("another doctor wrote to this doctor's record".into());
                    }
                    Err(failure) => return Err(failure.to_string()),
                }
                Ok(())
            });
            let writes = writes.await;
            // If this fails, a later doctor takes the record over.
            let _ = storage.compare_and_delete(&key, held.incarnation(), held.epoch).await;
            writes
        }
        Err(failure) => Trips { took: Vec::new(), failure: Some(failure) },
    };
    Measured { reads, writes }
}

async fn repeat(clock: &Arc<dyn Clock>, mut call: impl AsyncFnMut() -> Result<(), String>) -> Trips {
    let (began, mut took) = (clock.now(), Vec::new());
    for _ in 0..TRIALS {
        let sent = clock.now();
        if let Err(failure) = call().await {
            return Trips::of(took, Some(failure));
        }
        took.push(sent.until(clock.now()));
        if began.until(clock.now()) > ENOUGH {
            break;
        }
    }
    Trips::of(took, None)
}

fn record(number: u32) -> ElectionKey {
    let slot = SlotNumber::new(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN));
    ElectionKey { cluster: ClusterName::new(NAME), slot }
}

/// Claims the first free record. If none is free, takes the last one over: its doctor is dead, or its next
/// write fails.
async fn claim(storage: &ElectionsTtlStorage, ttl: Ttl) -> Result<(ElectionKey, Entry), String> {
    let mut bytes = [0; 16];
    OsEntropy::default().fill(&mut bytes);
    let incarnation = Incarnation::from_bytes(bytes);
    let holder = Holder::new("vvm doctor").map_err(|refusal| refusal.to_string())?;
    let ttl = Ttl::new(ttl.get().max(storage.limits().min_ttl)).map_err(|refusal| refusal.to_string())?;
    for number in 1..=RECORDS {
        let key = record(number);
        let found = storage.get(&key).await.map_err(|failure| failure.to_string())?;
        let wall = SystemWallClock.since_unix_epoch();
        let epoch = Epoch::following(found.last_epoch(), wall).map_err(|refusal| refusal.to_string())?;
        let version = Version { incarnation, write: 1 };
        let entry = Entry { holder: holder.clone(), version, ttl, epoch };
        let claimed = match &found {
            Slot::Vacant(Vacant { last_epoch }) => {
                storage.insert_if_not_exist(&key, Vacant { last_epoch: *last_epoch }, &entry).await
            }
            Slot::Held { .. } if number < RECORDS => continue,
            Slot::Held { entry: stands, .. } => storage.take_over(&key, stands, &entry).await,
        };
        match claimed {
            Ok(Claim::Claimed) => return Ok((key, entry)),
            Ok(Claim::Refused(_)) => {}
            Err(failure) => return Err(failure.to_string()),
        }
    }
    Err(format!("{RECORDS} other doctors measure here now: try again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_nearest_rank() {
        let trips = Trips::of((1..=50).rev().map(Duration::from_millis).collect(), None);
        let quantiles = [1, 50, 90, 99, 100].map(|percent| trips.quantile(percent).as_millis());
        assert_eq!(quantiles, [1, 25, 45, 50, 50]);
        assert_eq!(Trips::default().quantile(99), Duration::ZERO);
    }
}
