//! Changes of the role, and new leaders, as `tracing` events with fields.

use super::{Candidate, PendingRestart, Role, SeenLeader, WhyStopping, loss_word};

macro_rules! log {
    ($level:ident, $($fields:tt)*) => { tracing::$level!(target: "vvm", $($fields)*) };
}

/// Logs a new role, except the last one: the program logs its own outcome. The message is for printing subscribers.
pub(super) fn log_role(candidate: &Candidate, role: &Role) {
    let (name, holder) = (candidate.name.as_str(), candidate.holder.as_str());
    let event = role.word();
    let slot = role.leadership().map(|leading| leading.slot);
    let epoch = role.leadership().map(|leading| leading.standing.epoch().get());
    let incarnation = role.leadership().map(|leading| leading.standing.incarnation().to_string());
    let says = format!("{name}{}: {event}", slot.map(|slot| format!(" slot {slot}")).unwrap_or_default());
    match role {
        Role::Ended { .. } => {}
        Role::Stopping { why: WhyStopping::Lost(loss), .. } => {
            let (loss, reason, why) = (loss_word(loss), loss.to_string(), "lost");
            let says = format!("{says}: {why}: {reason}");
            log!(warn, event, name, holder, slot, epoch, incarnation, why, loss, reason, "{says}");
        }
        Role::Stopping { why, .. } => {
            let why = why.word();
            let says = format!("{says}: {}", why.replace('_', " "));
            log!(info, event, name, holder, slot, epoch, incarnation, why, "{says}");
        }
        Role::Idling { idle, .. } => {
            let PendingRestart { number: restart, limit, pause, ref ended } = *idle;
            let (in_ms, reason) = (pause.as_millis() as u64, format!("the command {ended}"));
            let says = format!("{says}: {reason}");
            log!(
                info,
                event,
                name,
                holder,
                slot,
                epoch,
                incarnation,
                restart,
                limit,
                in_ms,
                reason,
                "{says}"
            );
        }
        _ => log!(info, event, name, holder, slot, epoch, incarnation, "{says}"),
    }
}

pub(super) fn log_new_leader(candidate: &Candidate, leader: &SeenLeader) {
    let (name, holder) = (candidate.name.as_str(), candidate.holder.as_str());
    let (slot, epoch, new) = (leader.slot, leader.epoch.get(), leader.holder.as_str());
    log!(info, event = "new_leader", name, holder, slot, epoch, leader = new, "{name}: {leader}");
}
