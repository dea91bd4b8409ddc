//! How long calls take from here. Writes go to a record of the doctor's own: the name of its cluster has a
//! control character, which no name on a command line may have, so that nobody can campaign for it. What is
//! left of it afterwards is a free slot, one of a few, used again and again.

use crate::cli::args::DoctorArgs;
use ielections::{
    Claim, Entropy as _, Entry, Epoch, Holder, Incarnation, OsEntropy, Slot, Swap, Ttl, TtlStorage as _,
    Vacant, Version,
};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use vvm_clock::{Clock, SystemWallClock, WallClock as _};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber};

/// How often each kind of call is made.
const TRIALS: usize = 50;

/// How long one kind may take together, on a storage that is slow.
const ENOUGH: Duration = Duration::from_secs(10);

/// How many doctors can be at work at once without getting in each other's way.
const PLACES: u32 = 8;

/// What nobody can campaign for.
const NAME: &[u8] = b"\0vvm doctor";

/// How long calls took.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Trips {
    /// From short to long.
    took: Vec<Duration>,
    /// What the first that failed said.
    pub(super) failure: Option<String>,
}

/// What was measured.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Measured {
    pub(super) reads: Trips,
    pub(super) writes: Trips,
}

impl Trips {
    pub(super) fn count(&self) -> usize {
        self.took.len()
    }

    /// As long as so many of a hundred took at most (nearest rank); zero where nothing was measured.
    pub(super) fn quantile(&self, percent: usize) -> Duration {
        let rank = (self.took.len() * percent).div_ceil(100).max(1);
        self.took.get(rank - 1).copied().unwrap_or_default()
    }

    fn of(mut took: Vec<Duration>, failure: Option<String>) -> Self {
        took.sort_unstable();
        Self { took, failure }
    }
}

/// Measures reads and conditional writes. What fails is what was found.
pub(super) async fn measure(
    storage: &ElectionsTtlStorage,
    clock: &Arc<dyn Clock>,
    args: &DoctorArgs,
) -> Measured {
    let first = place(1);
    let reads = repeat(clock, async || match storage.get(&first).await {
        Ok(_) => Ok(()),
        Err(failure) => Err(failure.to_string()),
    });
    let reads = reads.await;
    let writes = match claim(storage, args.ttl).await {
        Ok((key, mut held)) => {
            let writes = repeat(clock, async || {
                let version = Version { write: held.version.write + 1, ..held.version };
                let next = held.renewed(version);
                match storage.compare_and_swap(&key, &held, &next).await {
                    Ok(Swap::Swapped) => held = next,
                    Ok(Swap::Mismatch(_)) => return Err("somebody else wrote to the doctor's record".into()),
                    Err(failure) => return Err(failure.to_string()),
                }
                Ok(())
            });
            let writes = writes.await;
            // A record that stays is one that the next doctor passes by, or takes over.
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

fn place(number: u32) -> ElectionKey {
    let slot = SlotNumber::new(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN));
    ElectionKey { cluster: ClusterName::new(NAME), slot }
}

/// A record of our own, in the first place that is free; where none is, in the last one, whose doctor has
/// died or is told so by its next write.
async fn claim(storage: &ElectionsTtlStorage, ttl: Ttl) -> Result<(ElectionKey, Entry), String> {
    let mut bytes = [0; 16];
    OsEntropy::default().fill(&mut bytes);
    let incarnation = Incarnation::from_bytes(bytes);
    let holder = Holder::new("vvm doctor").map_err(|refusal| refusal.to_string())?;
    let ttl = Ttl::new(ttl.get().max(storage.limits().min_ttl)).map_err(|refusal| refusal.to_string())?;
    for number in 1..=PLACES {
        let key = place(number);
        let found = storage.get(&key).await.map_err(|failure| failure.to_string())?;
        let wall = SystemWallClock.since_unix_epoch();
        let epoch = Epoch::following(found.last_epoch(), wall).map_err(|refusal| refusal.to_string())?;
        let version = Version { incarnation, write: 1 };
        let entry = Entry { holder: holder.clone(), version, ttl, epoch };
        let claimed = match &found {
            Slot::Vacant(Vacant { last_epoch }) => {
                storage.insert_if_not_exist(&key, Vacant { last_epoch: *last_epoch }, &entry).await
            }
            Slot::Held { .. } if number < PLACES => continue,
            Slot::Held { entry: stands, .. } => storage.take_over(&key, stands, &entry).await,
        };
        match claimed {
            Ok(Claim::Claimed) => return Ok((key, entry)),
            Ok(Claim::Refused(_)) => {}
            Err(failure) => return Err(failure.to_string()),
        }
    }
    Err(format!("{PLACES} other doctors are at work here: try again"))
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
