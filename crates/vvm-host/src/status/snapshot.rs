//! [`Snapshot`]: the status at one moment, as the JSON of `/status`.

use super::{HostStatus, Readiness, Role, WhyStopping, telemetry::loss_word};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

/// The status at one moment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Snapshot {
    version: &'static str,
    name: String,
    holder: String,
    slots: u32,
    ttl_ms: u64,
    uptime_ms: u64,
    /// One word.
    role: &'static str,
    /// The role as a line for people.
    says: String,
    ready: bool,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_ready: Option<String>,
    leadership: Option<LeadershipShown>,
    /// The leaders of other slots, as last seen.
    others: Vec<OtherShown>,
    storage: StorageShown,
    renewals: RenewalsShown,
    leaderships: u64,
    take_overs: u64,
    restarts: u64,
    check_failures: u64,
    /// The exit status of the last run of the command; absent before the first one ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_exit_status: Option<u8>,
    /// Counts by call and failure, as `write_unknown`, without zeros.
    failures: BTreeMap<String, u64>,
    /// Counts by reason, without zeros.
    losses: BTreeMap<&'static str, u64>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct LeadershipShown {
    slot: u32,
    epoch: u64,
    incarnation: String,
    /// The time until the kill deadline; zero once lost.
    margin_ms: u64,
    since_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopping: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<&'static str>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct OtherShown {
    slot: u32,
    holder: String,
    epoch: u64,
    seen_ms_ago: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct StorageShown {
    /// The time since its last answer, or since the start.
    answered_ms_ago: u64,
    trouble: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct RenewalsShown {
    count: u64,
    mean_ms: Option<f64>,
    /// For each bound in milliseconds, how many renewals did not take longer.
    up_to_ms: Vec<(u64, u64)>,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl HostStatus {
    /// Returns the status at this moment.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let role = self.role();
        let (candidate, telemetry, now) = (self.candidate(), self.telemetry(), self.now());
        let not_ready = match self.readiness() {
            Readiness::Ready => None,
            Readiness::NotReady(reason) => Some(reason),
        };
        let renewals = telemetry.renewals.read();
        let leadership = role.leadership().map(|leading| LeadershipShown {
            slot: leading.slot,
            epoch: leading.standing.epoch().get(),
            incarnation: leading.standing.incarnation().to_string(),
            margin_ms: millis(leading.standing.remaining()),
            since_ms: millis(leading.since.until(now)),
            stopping: match &role {
                Role::Stopping { why, .. } => Some(why.word()),
                _ => None,
            },
            loss: match &role {
                Role::Stopping { why: WhyStopping::Lost(loss), .. } => loss_word(loss),
                _ => None,
            },
        });
        let others = self.others().into_iter().map(|seen| OtherShown {
            slot: seen.slot,
            holder: seen.holder.to_string(),
            epoch: seen.epoch.get(),
            seen_ms_ago: millis(seen.ago),
        });
        let failures = telemetry.failures().filter(|(.., count)| *count > 0);
        Snapshot {
            version: env!("CARGO_PKG_VERSION"),
            name: candidate.name.clone(),
            holder: candidate.holder.to_string(),
            slots: candidate.slots.get(),
            ttl_ms: millis(candidate.ttl.get()),
            uptime_ms: millis(self.age()),
            role: role.word(),
            says: role.to_string(),
            ready: not_ready.is_none(),
            not_ready,
            leadership,
            others: others.collect(),
            storage: StorageShown {
                answered_ms_ago: millis(self.unanswered_for()),
                trouble: self.storage_problem().map(|problem| problem.to_string()),
            },
            renewals: RenewalsShown {
                count: renewals.count,
                mean_ms: (renewals.count > 0)
                    .then(|| renewals.sum.as_secs_f64() * 1e3 / renewals.count as f64),
                up_to_ms: renewals.cumulative.iter().map(|(bound, count)| (millis(*bound), *count)).collect(),
            },
            leaderships: telemetry.leaderships.get(),
            take_overs: telemetry.take_overs.get(),
            restarts: telemetry.restarts.get(),
            check_failures: telemetry.check_failures.get(),
            last_exit_status: telemetry.last_exit_status(),
            failures: failures
                .map(|(call, failure, count)| (format!("{}_{}", call.word(), failure.word()), count))
                .collect(),
            losses: telemetry.losses().filter(|(_, count)| *count > 0).collect(),
        }
    }
}
