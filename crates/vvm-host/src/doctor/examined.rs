//! What follows from the figures, and from what the machine says of itself, with the way out where there is one.

use super::{
    finding::{Finding, Health},
    measured::{Measured, Trips},
};
use crate::{
    cli::args::DoctorArgs,
    containment::{Containment, Level, Wanted},
};
use clock::{Instant, SystemWallClock, WallClock as _};
use ielections::{ReadError, Timing, TtlStorage as _};
use rustix::process::{Resource, getrlimit};
use std::{num::NonZeroU32, time::Duration};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber};

/// How often a slow write should fit into one attempt of a renewal, so that a bad minute does not cost a leadership.
const ROOM: u32 = 4;

/// How far an epoch may be ahead of this machine's wall clock before one of the two clocks is in doubt.
const AHEAD: Duration = Duration::from_secs(10);

/// What guardian, host, storage and HTTP need together.
const FILES: u64 = 64;

/// What the storage and the way to it come to.
///
/// # Errors
/// When it can't be read at all.
pub(super) async fn storage(
    storage: &ElectionsTtlStorage,
    args: &DoctorArgs,
    measured: &Measured,
) -> Result<Vec<Finding>, ReadError> {
    let cluster = ClusterName::from(args.name.as_str());
    let settled = storage.slot_count(&cluster).await?;
    let keys = SlotNumber::all(settled.unwrap_or(NonZeroU32::MIN))
        .map(|slot| ElectionKey { cluster: cluster.clone(), slot })
        .collect::<Vec<_>>();
    let slots = storage.scan(&keys).await?;
    let newest = slots.iter().filter_map(|slot| slot.last_epoch()).max().map(|epoch| epoch.get());
    let held = slots.iter().filter(|slot| slot.entry().is_some()).count();
    let says = match settled {
        Some(count) => {
            format!("{held} of {count} slots held; version and settings are not told by the driver")
        }
        None => "nobody has campaigned for this name; version and settings are not told by the driver".into(),
    };
    let shown = Finding::new("storage", Health::Good, says).with("held", held);
    let shown = shown.with("slots", settled.map(NonZeroU32::get));
    Ok(vec![
        shown,
        trips("reads", &measured.reads),
        trips("writes", &measured.writes),
        margins(storage, args, &measured.writes),
        wall_clock(newest, SystemWallClock.since_unix_epoch()),
    ])
}

fn trips(about: &'static str, trips: &Trips) -> Finding {
    let quantiles = [50, 90, 99, 100].map(|percent| trips.quantile(percent));
    let [median, ninety, slow, slowest] = quantiles;
    let count = trips.count();
    let says =
        format!("{count} trips: p50 {median:.1?}, p90 {ninety:.1?}, p99 {slow:.1?}, slowest {slowest:.1?}");
    let finding = match &trips.failure {
        Some(failure) => Finding::new(about, Health::Problem, format!("failed: {failure} ({says})")),
        None => Finding::new(about, Health::Good, says),
    };
    let named = ["p50", "p90", "p99", "slowest"].into_iter().zip(quantiles);
    let finding = finding.with("count", count);
    named.fold(finding, |finding, (name, duration)| finding.with_duration(name, duration))
}

/// What the TTL makes of it.
fn margins(storage: &ElectionsTtlStorage, args: &DoctorArgs, writes: &Trips) -> Finding {
    let (timing, least) = (Timing::of(args.ttl), storage.limits().min_ttl);
    let attempt = timing.attempt_timeout();
    let seconds = |at: Instant| at.since(Instant::ORIGIN);
    let (loss, kill) = (seconds(timing.loss_at(Instant::ORIGIN)), seconds(timing.kill_at(Instant::ORIGIN)));
    let slow = writes.quantile(99);
    let fits = (writes.count() > 0).then(|| attempt.as_secs_f64() / slow.as_secs_f64().max(1e-6));
    // An attempt has a tenth of a TTL.
    let wanted = (slow * ROOM * 10).max(least);
    let usual = format!(
        "TTL {}: lost {loss:?} and killed {kill:?} after the last renewal; an attempt to renew has {attempt:?}",
        args.ttl
    );
    let (health, says) = match fits {
        _ if args.ttl.get() < least => (
            Health::Problem,
            format!("{usual}; this storage takes no TTL below {least:?}: choose a longer one"),
        ),
        None => (Health::Problem, format!("{usual}; no write has shown how long one takes")),
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
    let finding = Finding::new("margins", health, says).with("fits", fits);
    finding.with_duration("attempt", attempt).with_duration("loss", loss).with_duration("kill", kill)
}

/// Epochs are milliseconds of some machine's wall clock, or larger. Nothing depends on it but that they rise after a restore
/// from a backup, for which a clock that is far behind is no help.
fn wall_clock(newest: Option<u64>, now: Duration) -> Finding {
    let Some(newest) = newest.map(Duration::from_millis) else {
        return Finding::new("wall clock", Health::Good, "nothing in the storage to compare it with");
    };
    let ahead = newest.saturating_sub(now);
    let finding = if ahead > AHEAD {
        let says = format!(
            "{ahead:.0?} behind the newest epoch: this clock or that of an earlier leader is wrong (NTP?). Elections \
             don't depend on it, but after a restore from a backup epochs rise only by right clocks"
        );
        Finding::new("wall clock", Health::Caution, says)
    } else {
        Finding::new("wall clock", Health::Good, "not behind the newest epoch")
    };
    finding.with_duration("behind", ahead)
}

/// Which levels are to be had here.
pub(super) fn containment() -> Finding {
    let mut figures = serde_json::Map::new();
    let mut said = Vec::new();
    for level in [Level::Guardian, Level::ControlGroup, Level::PidNamespace] {
        let refusal = match Containment::establish(Wanted::Exactly(level)) {
            Ok(containment) => {
                containment.dissolve();
                None
            }
            Err(refusal) => Some(refusal.to_string()),
        };
        said.push(match &refusal {
            None => level.to_string(),
            Some(refusal) => format!("not {level} ({refusal})"),
        });
        figures.insert(level.to_string(), refusal.is_none().into());
    }
    // The first level is what every other one stands on.
    let has_any = figures.get("guardian").is_some_and(|had| had == true);
    let health = if has_any { Health::Good } else { Health::Problem };
    Finding::new("containment", health, said.join(", ")).with("levels", figures)
}

/// How many files a process may have open.
pub(super) fn limits() -> Finding {
    let limit = getrlimit(Resource::Nofile).current;
    let (health, says) = match limit {
        Some(limit) if limit < FILES => (
            Health::Problem,
            format!("{limit} open files: let it open more, {FILES} at least (ulimit -n, LimitNOFILE=)"),
        ),
        Some(limit) => (Health::Good, format!("{limit} open files")),
        None => (Health::Good, "any number of open files".into()),
    };
    Finding::new("limits", health, says).with("open_files", limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_far_behind_the_newest_epoch_is_told() {
        let now = Duration::from_secs(1_000_000);
        let health = |newest| wall_clock(newest, now).health;
        assert_eq!(health(None), Health::Good);
        assert_eq!(health(Some(1_000_000_000 - 5)), Health::Good);
        assert_eq!(health(Some(1_000_000_000 + 9_000)), Health::Good);
        assert_eq!(health(Some(1_000_000_000 + 60_000)), Health::Caution);
    }
}
