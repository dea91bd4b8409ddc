//! The spec of a Lease: what `kubectl get lease` shows and client-go goes by.

use super::names::digest;
use ielections::Entry;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    /// The holder; empty if vacant.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder_identity: Option<String>,
    /// The TTL, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease_duration_seconds: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acquire_time: Option<String>,
    /// Later with each write of a record.
    #[serde(skip_serializing_if = "Option::is_none")]
    renew_time: Option<String>,
    /// How often the slot was claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_transitions: Option<i32>,
    /// Of coordinated leader election, which would choose a holder by itself. Never written.
    #[serde(skip_serializing_if = "Option::is_none")]
    strategy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preferred_holder: Option<String>,
}

/// Shown for a holder without a name: an empty one would be a vacancy to client-go.
const UNNAMED: &str = "-";

impl Spec {
    /// The spec of the next write. `now` counts from the Unix epoch.
    pub(super) fn followed_by(&self, record: Option<&Entry>, is_claim: bool, now: Duration) -> Self {
        let was_led = self.lease_duration_seconds.is_some();
        let Some(entry) = record else {
            let holder_identity = Some(String::new());
            if !was_led {
                return Self { holder_identity, ..Self::default() };
            }
            let now = self.next_time(now);
            return Self {
                holder_identity,
                // As client-go writes it: it must be positive.
                lease_duration_seconds: Some(1),
                acquire_time: now.clone(),
                renew_time: now,
                lease_transitions: self.lease_transitions,
                ..Self::default()
            };
        };
        let now = self.next_time(now);
        let name = entry.holder.as_str();
        Self {
            holder_identity: Some(if name.is_empty() { UNNAMED } else { name }.to_owned()),
            lease_duration_seconds: Some(seconds(entry.ttl.get())),
            acquire_time: if is_claim { now.clone() } else { self.acquire_time.clone() },
            renew_time: now,
            lease_transitions: Some(self.transitions().saturating_add(is_claim.into())),
            ..Self::default()
        }
    }

    /// The time to show: after the one that is shown, whatever the wall clock does.
    fn next_time(&self, now: Duration) -> Option<String> {
        let now = i64::try_from(now.as_micros()).ok()?;
        let next = self.renewed_micros().map_or(now, |last| now.max(last.saturating_add(1)));
        Some(Timestamp::from_microsecond(next).ok()?.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
    }

    /// When it was renewed, in microseconds since the Unix epoch.
    pub(super) fn renewed_micros(&self) -> Option<i64> {
        Some(self.renew_time.as_ref()?.parse::<Timestamp>().ok()?.as_microsecond())
    }

    fn transitions(&self) -> i32 {
        self.lease_transitions.unwrap_or_default()
    }

    /// The holder, unless it is vacant.
    pub(super) fn holder(&self) -> Option<&str> {
        self.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    /// What stays the same while one holder renews.
    pub(super) fn leadership(&self) -> String {
        let Self { acquire_time, holder_identity, .. } = self;
        digest(format!("{holder_identity:?} {acquire_time:?} {}", self.transitions()).as_bytes())
    }

    /// Changes with every field.
    pub(super) fn digest(&self) -> String {
        // Plain fields: nothing fails.
        digest(&serde_json::to_vec(self).unwrap_or_default())[..32].into()
    }
}

/// Rounded up, so that a client that goes by it is never early.
fn seconds(ttl: Duration) -> i32 {
    let whole = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0)).max(1);
    i32::try_from(whole).unwrap_or(i32::MAX)
}
