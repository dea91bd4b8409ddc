//! The status at one moment, as the JSON of `/status`.

use super::{HostStatus, Role, WhyStopping, loss_word, millis};
use serde_json::{Map, Value, json};
use vvm_clock::Instant;

impl HostStatus {
    /// Returns the status at this moment. Counts of failures and losses have no zeros.
    pub(crate) fn snapshot(&self) -> Value {
        let role = self.role();
        let (candidate, telemetry) = (&self.candidate, &self.telemetry);
        let (renewals, not_ready) = (telemetry.renewals.read(), self.readiness().err());
        let mean_ms = renewals.sum.as_secs_f64() * 1e3 / renewals.count as f64;
        let bounds = renewals.cumulative.iter().map(|(bound, count)| (millis(*bound), *count));
        let others = self.others().into_iter().map(|seen| {
            let (slot, holder, epoch) = (seen.slot, seen.holder.as_str(), seen.epoch.get());
            json!({"slot": slot, "holder": holder, "epoch": epoch, "seen_ms_ago": millis(seen.ago)})
        });
        let failures = telemetry.failures().filter(|(.., count)| *count > 0);
        let failures = failures
            .map(|(call, failure, count)| (format!("{}_{}", call.word(), failure), Value::from(count)));
        let now = self.clock.now();
        let change = |(at, says): &(Instant, String)| json!({"ms_ago": millis(at.until(now)), "says": says});
        let changes = self.changes.lock().iter().map(change).collect::<Vec<_>>();
        let uptime = self.began.until(self.clock.now());
        let losses = telemetry.losses().filter(|(_, count)| *count > 0);
        let mut shown = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "name": candidate.name, "holder": candidate.holder.as_str(),
            "slots": candidate.slots, "ttl_ms": millis(candidate.ttl.get()), "uptime_ms": millis(uptime),
            "role": role.word(), "says": self.activity(), "ready": not_ready.is_none(),
            "leadership": self.leadership_shown(&role),
            "others": others.collect::<Vec<_>>(),
            "storage": {
                "location": *self.location.lock(),
                "answered_ms_ago": millis(self.unanswered_for()),
                "trouble": self.storage_problem().as_deref(),
            },
            "renewals": {
                "count": renewals.count,
                "mean_ms": (renewals.count > 0).then_some(mean_ms),
                // For each bound, how many renewals did not take longer.
                "up_to_ms": bounds.collect::<Vec<_>>(),
            },
            "leaderships": telemetry.leaderships.get(), "take_overs": telemetry.take_overs.get(),
            "restarts": telemetry.restarts.get(), "check_failures": telemetry.check_failures.get(),
            "failures": failures.collect::<Map<_, _>>(),
            "changes": changes,
            "losses": losses.map(|(reason, count)| (reason.into(), count.into())).collect::<Map<_, _>>(),
        });
        if let Some(link) = self.link() {
            let ms_ago = |at: Instant| millis(at.until(now));
            // `null` while none is named.
            shown["successor"] = link.successor().map_or(Value::Null, |named| {
                json!({
                    "address": named.address.to_string(),
                    "support_ms": millis(link.period.get()),
                    "named_ms_ago": ms_ago(named.since),
                    "acknowledged_ms_ago": named.acknowledged_at.map(ms_ago),
                })
            });
        }
        if let Some(reason) = not_ready {
            shown["not_ready"] = reason.into();
        }
        if let Some(status) = *telemetry.last_exit_status.lock() {
            shown["last_exit_status"] = status.into();
        }
        shown
    }

    fn leadership_shown(&self, role: &Role) -> Option<Value> {
        let leading = role.leadership()?;
        let mut shown = json!({
            "slot": leading.slot, "epoch": leading.standing.epoch().get(),
            "incarnation": leading.standing.incarnation().to_string(),
            // The time until the kill deadline; zero once lost.
            "margin_ms": millis(leading.standing.remaining()),
            "since_ms": millis(leading.since.until(self.clock.now())),
        });
        if let Role::Stopping { why, .. } = role {
            shown["stopping"] = why.word().into();
        }
        if let Role::Stopping { why: WhyStopping::Lost(loss), .. } = role
            && let Some(loss) = loss_word(loss)
        {
            shown["loss"] = loss.into();
        }
        Some(shown)
    }
}
