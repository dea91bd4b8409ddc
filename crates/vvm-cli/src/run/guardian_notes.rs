//! Sends the state of the host to the guardian, for the service manager, which knows only the guardian.

use crate::notes::{Activity, HostState, ToGuardian};
use std::{convert::Infallible, future, sync::Arc};
use vvm_containment::Guardian;
use vvm_host::status::{HostStatus, IdleUntil, Role, WhyStopping};

/// Sends each change, as long as it is polled.
///
/// # Cancel safety
/// May be dropped at any time.
pub(super) async fn send_changes(status: Arc<HostStatus>, guardian: Guardian) -> Infallible {
    let mut roles = status.roles();
    loop {
        if let Some(state) = state(&roles.borrow_and_update()) {
            // A guardian that does not read misses this one, and gets the next.
            guardian.note(ToGuardian::State(state).into());
        }
        if roles.changed().await.is_err() {
            return future::pending().await;
        }
    }
}

/// Returns the state of a role; none before the storage is open.
fn state(role: &Role) -> Option<HostState> {
    let activity = match role {
        Role::Opening => return None,
        Role::Campaigning => Activity::Waiting,
        Role::Starting(_) | Role::Leading(_) => Activity::Leading,
        Role::Idling { idle, .. } => match idle.until {
            IdleUntil::Restart { .. } => Activity::Restarting,
            IdleUntil::Release => Activity::Holding,
        },
        // After a loss or the command's end another campaign may follow.
        Role::Stopping { why: WhyStopping::Asked, .. } => Activity::StoppingForGood,
        Role::Stopping { .. } => Activity::Stopping,
        Role::Ended { .. } => Activity::Ended,
    };
    let leading = role.leadership().map(|leading| (leading.slot, leading.standing.epoch()));
    Some(HostState { activity, leading })
}
