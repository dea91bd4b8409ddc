//! Changes of the role as `tracing` events with fields.

use super::{Candidate, Idle, IdleUntil, Role, Seen, WhyStopping, telemetry::loss_word};
use std::time::Duration;

/// Logs with the target of all events of this crate, for filters.
macro_rules! log {
    ($level:ident, $($fields:tt)*) => { tracing::$level!(target: "vvm", $($fields)*) };
}

/// Logs a new role, except the last one: the program logs its own outcome.
pub(super) fn role(candidate: &Candidate, role: &Role) {
    let (name, holder) = (candidate.name.as_str(), candidate.holder.as_str());
    let event = role.word();
    let slot = role.leadership().map(|leading| leading.slot);
    let epoch = role.leadership().map(|leading| leading.standing.epoch().get());
    let incarnation = role.leadership().map(|leading| leading.standing.incarnation().to_string());
    match role {
        Role::Ended { .. } => {}
        Role::Stopping { why: WhyStopping::Lost(loss), .. } => {
            let (loss, reason) = (loss_word(loss), loss.to_string());
            log!(warn, event, name, holder, slot, epoch, incarnation, why = "lost", loss, reason);
        }
        Role::Stopping { why, .. } => {
            log!(info, event, name, holder, slot, epoch, incarnation, why = why.word());
        }
        Role::Idling { idle: Idle { until, pause, ended }, .. } => {
            let (restart, limit) = match until {
                IdleUntil::Restart { number, limit } => (Some(*number), *limit),
                IdleUntil::Release => (None, None),
            };
            let (in_ms, reason) = (pause.as_millis() as u64, format!("the command {ended}"));
            log!(info, event, name, holder, slot, epoch, incarnation, restart, limit, in_ms, reason);
        }
        _ => log!(info, event, name, holder, slot, epoch, incarnation),
    }
}

/// Logs that a standby sees another leader than before.
pub(super) fn new_leader(candidate: &Candidate, leader: &Seen) {
    let (name, holder) = (candidate.name.as_str(), candidate.holder.as_str());
    let (slot, epoch, new) = (leader.slot, leader.epoch.get(), leader.holder.as_str());
    log!(info, event = "new_leader", name, holder, slot, epoch, leader = new, "{name}: {leader}");
}

/// Logs a confirmed renewal, at level debug because there are many.
pub(super) fn renewal(latency: Duration) {
    log!(debug, event = "renewed", latency_ms = latency.as_secs_f64() * 1e3);
}
