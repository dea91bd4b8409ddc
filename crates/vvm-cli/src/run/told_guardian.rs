//! The guardian is told how we stand, for the service manager that knows only the guardian.

use crate::notes::{Stands, ToGuardian};
use std::{convert::Infallible, future, sync::Arc};
use vvm_containment::Guardian;
use vvm_host::status::{HostStatus, IdleUntil, Role, WhyStopping};

/// Tells each change, as long as it is polled.
///
/// # Cancel safety
/// May be dropped at will.
pub(super) async fn tell_guardian(situation: Arc<HostStatus>, guardian: Guardian) -> Infallible {
    let mut roles = situation.roles();
    loop {
        if let Some(stands) = stands(&roles.borrow_and_update()) {
            // A guardian that has not listened for long hears the next one.
            guardian.note(ToGuardian::Stands(stands).into());
        }
        if roles.changed().await.is_err() {
            return future::pending().await;
        }
    }
}

/// What there is to tell of a role: nothing before the storage is open.
fn stands(role: &Role) -> Option<Stands> {
    Some(match role {
        Role::Opening => return None,
        Role::Campaigning => Stands::Waiting,
        Role::Starting(leading) | Role::Leading(leading) => {
            Stands::Leading { slot: leading.slot, epoch: leading.standing.epoch() }
        }
        Role::Idling { leading, idle } => Stands::Idling {
            slot: leading.slot,
            epoch: leading.standing.epoch(),
            restarts: matches!(idle.until, IdleUntil::Restart { .. }),
        },
        Role::Stopping { leading, why } => Stands::Stopping {
            slot: leading.slot,
            epoch: leading.standing.epoch(),
            // After a loss, or a command's end, it depends on what was asked for.
            for_good: matches!(why, WhyStopping::Asked),
        },
        Role::Ended { .. } => Stands::Ended,
    })
}
