//! Findings about the storage, the machine's limits and containment, each with its remedy.

use super::{CheckResult, DoctorArgs, Health};
use crate::contained::NotContained;
use ielections::{
    Claim, Entropy as _, Entry, Epoch, Holder, Incarnation, OsEntropy, ReadError, Slot, Swap, Timing, Ttl,
    TtlStorage as _, Vacant, Version,
};
use rustix::process::{Resource, getrlimit};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use vvm_clock::{Clock, Instant, SystemWallClock, WallClock as _};
use vvm_containment::{Containment, Level, RequestedLevel};
use vvm_host::operate::StorageInspector;
use vvm_storage::{ClusterName, Description, ElectionKey, ElectionsTtlStorage, SlotNumber};

/// How many slow writes should fit into one attempt of a renewal: room for a busy minute.
pub(super) const ROOM: u32 = 4;

/// Files that guardian, host, storage and HTTP open together.
const FILES: u64 = 64;

/// Only this level leaves nothing then. The command notices it, so `auto` does not choose it.
const FOR_BACKGROUND_PROCESSES: &str = "Choose --containment pidns if the command starts background processes \
    and need not see others: they can't outlive a kill of all vvm processes at once";

pub(super) async fn examine(
    inspector: &StorageInspector,
    args: &DoctorArgs,
    measured: &MeasuredTrips,
) -> Result<(Vec<CheckResult>, Option<u64>), ReadError> {
    let storage = &inspector.storage;
    let (settled, keys) = inspector.keys().await?;
    let slots = storage.scan(&keys).await?;
    let newest = slots.iter().filter_map(|slot| slot.last_epoch()).max().map(|epoch| epoch.get());
    let held = slots.iter().filter(|slot| slot.entry().is_some()).count();
    let described = storage.describe().await;
    let software = described.as_ref().ok().and_then(|described| described.software.clone());
    let (health, slots) = match settled {
        Some(count) => (Health::Good, format!("{held} of {count} slots held")),
        None => (Health::Caution, "no candidate has used this name: if one should have, check --name".into()),
    };
    let location = storage.opened().map(|opened| opened.location);
    let says = software.iter().chain(&location).chain([&slots]).cloned().collect::<Vec<_>>().join("; ");
    let shown = CheckResult::new("storage", health, says).with("software", software).with("held", held);
    let shown = shown.with("location", location);
    let mut findings = vec![shown.with("slots", settled.map(NonZeroU32::get))];
    findings.extend(settings(described));
    let least = storage.limits().min_ttl;
    findings.extend([trips("reads", &measured.reads), trips("writes", &measured.writes)]);
    findings.push(margins(least, args, &measured.writes));
    Ok((findings, newest))
}

fn settings(described: Result<Description, ReadError>) -> Option<CheckResult> {
    const ABOUT: &str = "settings";
    let described = match described {
        Ok(described) if described.settings.is_empty() && described.concerns.is_empty() => return None,
        Ok(described) => described,
        Err(refusal) => {
            return Some(CheckResult::new(ABOUT, Health::Caution, format!("can't be read: {refusal}")));
        }
    };
    let settings = described.settings.iter().map(|(name, value)| format!("{name} {value}"));
    let mut sentences = described.concerns.clone();
    if !described.settings.is_empty() {
        sentences.insert(0, settings.collect::<Vec<_>>().join(", "));
    }
    let health = if described.concerns.is_empty() { Health::Good } else { Health::Caution };
    let finding = CheckResult::new(ABOUT, health, sentences.join(". ")).with("concerns", described.concerns);
    let named = described.settings.into_iter().map(|(name, value)| (name.replace([' ', '-'], "_"), value));
    Some(named.fold(finding, |finding, (name, value)| finding.with(&name, value)))
}

fn trips(about: &'static str, trips: &Trips) -> CheckResult {
    let quantiles = [50, 90, 99, 100].map(|percent| trips.quantile(percent));
    let [median, ninety, slow, slowest] = quantiles;
    let count = trips.count();
    let says =
        format!("{count} trips: p50 {median:.1?}, p90 {ninety:.1?}, p99 {slow:.1?}, slowest {slowest:.1?}");
    let finding = match &trips.failure {
        Some(failure) if count == 0 => CheckResult::new(about, Health::Problem, format!("failed: {failure}")),
        Some(failure) => CheckResult::new(about, Health::Problem, format!("failed: {failure} ({says})")),
        None => CheckResult::new(about, Health::Good, says),
    };
    let named = ["p50", "p90", "p99", "slowest"].into_iter().zip(quantiles);
    let finding = finding.with("count", count);
    named.fold(finding, |finding, (name, duration)| finding.with_duration(name, duration))
}

fn margins(least: Duration, args: &DoctorArgs, writes: &Trips) -> CheckResult {
    let timing = Timing::new(args.ttl);
    let attempt = timing.attempt_timeout();
    let seconds = |at: Instant| at.since(Instant::ORIGIN);
    let (loss, kill) = (seconds(timing.loss_at(Instant::ORIGIN)), seconds(timing.kill_at(Instant::ORIGIN)));
    let slow = writes.quantile(99);
    let fits = (writes.count() > 0).then(|| attempt.as_secs_f64() / slow.as_secs_f64().max(1e-6));
    // An attempt has TTL/10.
    let wanted = (slow * ROOM * 10).max(least);
    let usual = format!(
        "TTL {}: lost {loss:?} and killed {kill:?} after the last renewal; \
         an attempt to renew may take {attempt:?}",
        args.ttl
    );
    let (health, says) = match fits {
        _ if args.ttl.get() < least => (
            Health::Problem,
            format!("{usual}; the shortest TTL of this storage is {least:?}: choose a longer one"),
        ),
        None => (Health::Problem, format!("{usual}; no write succeeded")),
        Some(fits) if fits < 1.0 => (
            Health::Problem,
            format!("{usual}, and a slow write takes longer: choose a TTL of {wanted:.1?} or more"),
        ),
        Some(fits) if fits < f64::from(ROOM) => (
            Health::Caution,
            format!("{usual}, which a slow write fits into {fits:.1} times: better a TTL of {wanted:.1?}"),
        ),
        Some(fits) => (Health::Good, format!("{usual}, which a slow write fits into {fits:.0} times")),
    };
    let finding = CheckResult::new("margins", health, says).with("fits", fits);
    finding.with_duration("attempt", attempt).with_duration("loss", loss).with_duration("kill", kill)
}

pub(super) fn containment() -> CheckResult {
    let mut figures = serde_json::Map::new();
    let mut said = Vec::new();
    for level in [Level::Guardian, Level::ControlGroup, Level::PidNamespace] {
        let refusal = match Containment::establish(RequestedLevel::Exactly(level)) {
            Ok(containment) => {
                containment.dissolve();
                None
            }
            Err(refusal) => Some(NotContained(refusal).to_string()),
        };
        said.push(match &refusal {
            None => level.to_string(),
            Some(refusal) => format!("not {level} ({refusal})"),
        });
        figures.insert(level.to_string(), refusal.is_none().into());
    }
    let mut says = said.join(", ");
    if figures.get("pidns").is_some_and(|had| had == true) {
        says = format!("{says}. {FOR_BACKGROUND_PROCESSES}");
    }
    let has_any = figures.get("guardian").is_some_and(|had| had == true);
    let health = if has_any { Health::Good } else { Health::Problem };
    CheckResult::new("containment", health, says).with("levels", figures)
}

pub(super) fn limits() -> CheckResult {
    let limit = getrlimit(Resource::Nofile).current;
    let (health, says) = match limit {
        Some(limit) if limit < FILES => {
            (Health::Problem, format!("{limit} open files: allow {FILES} at least (ulimit -n, LimitNOFILE=)"))
        }
        Some(limit) => (Health::Good, format!("{limit} open files")),
        None => (Health::Good, "unlimited open files".into()),
    };
    CheckResult::new("limits", health, says).with("open_files", limit)
}

const TRIALS: usize = 50;

/// After so long no further call of its kind is made.
const ENOUGH: Duration = Duration::from_secs(10);

const RECORDS: u32 = 8;

/// The name of the records that writes go to. It has a control character, so no candidate can lead it. Each
/// record is released in the end, and used again by later doctors.
const NAME: &[u8] = b"\0vvm doctor";

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Trips {
    took: Vec<Duration>,
    pub(super) failure: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct MeasuredTrips {
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

    pub(super) fn from_samples(mut took: Vec<Duration>, failure: Option<String>) -> Self {
        took.sort_unstable();
        Self { took, failure }
    }
}

pub(super) async fn measure(
    storage: &ElectionsTtlStorage,
    clock: &Arc<dyn Clock>,
    args: &DoctorArgs,
) -> MeasuredTrips {
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
            // If this fails, the record stays held. Later doctors take over the last record alone.
            let _ = storage.compare_and_delete(&key, held.incarnation(), held.epoch).await;
            writes
        }
        Err(failure) => Trips { took: Vec::new(), failure: Some(failure) },
    };
    MeasuredTrips { reads, writes }
}

async fn repeat(clock: &Arc<dyn Clock>, mut call: impl AsyncFnMut() -> Result<(), String>) -> Trips {
    let (began, mut took) = (clock.now(), Vec::new());
    for _ in 0..TRIALS {
        let sent = clock.now();
        if let Err(failure) = call().await {
            return Trips::from_samples(took, Some(failure));
        }
        took.push(sent.until(clock.now()));
        if began.until(clock.now()) > ENOUGH {
            break;
        }
    }
    Trips::from_samples(took, None)
}

fn record(number: u32) -> ElectionKey {
    let slot = SlotNumber::new(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN));
    ElectionKey { cluster: ClusterName::new(NAME), slot }
}

/// Claims the first free record. If none is free, takes the last one over: its doctor is dead, or its next write fails.
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
    fn settings_are_listed_and_a_concern_is_a_caution() {
        assert_eq!(settings(Ok(Description::default())), None);
        let described = Description::new("Database 1").with("journal mode", "wal");
        let told = settings(Ok(described.clone())).unwrap();
        assert_eq!((told.health, &*told.says), (Health::Good, "journal mode wal"));
        assert_eq!(told.figures["journal_mode"], "wal");
        let unwise = settings(Ok(described.concerned("No disk. Buy one"))).unwrap();
        assert_eq!((unwise.health, &*unwise.says), (Health::Caution, "journal mode wal. No disk. Buy one"));
        let silent = settings(Err(ReadError::Unavailable("asleep".into()))).unwrap();
        assert!(silent.health == Health::Caution && silent.says.contains("asleep"), "{silent:?}");
    }

    #[test]
    fn quantiles_are_of_the_nearest_rank() {
        let trips = Trips::from_samples((1..=50).rev().map(Duration::from_millis).collect(), None);
        let quantiles = [1, 50, 90, 99, 100].map(|percent| trips.quantile(percent).as_millis());
        assert_eq!(quantiles, [1, 25, 45, 50, 50]);
        assert_eq!(Trips::default().quantile(99), Duration::ZERO);
    }
}
