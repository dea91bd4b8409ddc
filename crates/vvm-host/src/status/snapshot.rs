//! [`Snapshot`]: the situation at one moment, as JSON: what `/status` and a local socket answer.

use super::{HostStatus, Readiness, Role, WhyStopping, telemetry::loss_word};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

/// The situation at one moment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Snapshot {
    /// Of the program.
    version: &'static str,
    name: String,
    holder: String,
    slots: u32,
    ttl_ms: u64,
    uptime_ms: u64,
    /// One word.
    role: &'static str,
    /// The same for people.
    says: String,
    ready: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_ready: Option<String>,
    /// What is held, be it about to be handed back.
    leadership: Option<LeadershipShown>,
    /// Records of others, as last seen.
    others: Vec<OtherShown>,
    storage: StorageShown,
    renewals: RenewalsShown,
    leaderships: u64,
    take_overs: u64,
    /// How many, by call and failure (`write_unknown`); those that there were.
    failures: BTreeMap<String, u64>,
    /// How many, by reason; those that there were.
    losses: BTreeMap<&'static str, u64>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct LeadershipShown {
    slot: u32,
    epoch: u64,
    incarnation: String,
    /// How long the process would live without another renewal; zero once lost.
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
    /// How long ago it was last of use, or how long we have been waiting for that.
    answered_ms_ago: u64,
    trouble: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct RenewalsShown {
    count: u64,
    mean_ms: Option<f64>,
    /// Buckets that reach so far, in milliseconds, and how many were not longer.
    up_to_ms: Vec<(u64, u64)>,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl HostStatus {
    /// How it stands now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let role = self.role();
        let (candidate, telemetry, now) = (self.candidate(), self.telemetry(), self.now());
        let not_ready = match self.readiness() {
            Readiness::Ready => None,
            Readiness::NotReady(reason) => Some(reason),
        };
        let renewals = telemetry.renewals().read();
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
                answered_ms_ago: millis(self.useless_for()),
                trouble: self.trouble().map(|trouble| trouble.to_string()),
            },
            renewals: RenewalsShown {
                count: renewals.count,
                mean_ms: (renewals.count > 0)
                    .then(|| renewals.sum.as_secs_f64() * 1e3 / renewals.count as f64),
                up_to_ms: renewals.cumulative.iter().map(|(bound, count)| (millis(*bound), *count)).collect(),
            },
            leaderships: telemetry.leaderships(),
            take_overs: telemetry.take_overs(),
            failures: failures
                .map(|(call, failure, count)| (format!("{}_{}", call.word(), failure.word()), count))
                .collect(),
            losses: telemetry.losses().filter(|(_, count)| *count > 0).collect(),
        }
    }
}
