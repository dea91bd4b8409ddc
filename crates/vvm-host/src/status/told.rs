//! Changes of state as events of `tracing`, with fields, for those who log to programs.

use super::{Candidate, Idle, IdleUntil, Role, WhyStopping, telemetry::loss_word};
use std::time::Duration;

/// The target of all of them, for filters.
macro_rules! tell {
    ($level:ident, $($fields:tt)*) => { tracing::$level!(target: "vvm", $($fields)*) };
}

/// A role has begun. How it ended is told by who draws the conclusion, with what it came to.
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
            tell!(warn, event, name, holder, slot, epoch, incarnation, why = "lost", loss, reason);
        }
        Role::Stopping { why, .. } => {
            tell!(info, event, name, holder, slot, epoch, incarnation, why = why.word());
        }
        Role::Idling { idle: Idle { until, pause, ended }, .. } => {
            let (restart, limit) = match until {
                IdleUntil::Restart { number, limit } => (Some(*number), *limit),
                IdleUntil::Release => (None, None),
            };
            let (in_ms, reason) = (pause.as_millis() as u64, format!("the command {ended}"));
            tell!(info, event, name, holder, slot, epoch, incarnation, restart, limit, in_ms, reason);
        }
        _ => tell!(info, event, name, holder, slot, epoch, incarnation),
    }
}

/// A renewal was confirmed: far too often for a log that anybody reads.
pub(super) fn renewal(latency: Duration) {
    tell!(debug, event = "renewed", latency_ms = latency.as_secs_f64() * 1e3);
}
