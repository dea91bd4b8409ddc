//! When a kill deadline is in force in every process that enforces it.

use crate::successor::DeadlineEnforcer;
use futures_util::future::select_all;
use std::{future::pending, pin::Pin};
use tokio::sync::watch;
use vvm_clock::Instant;

/// Waits until each process that runs and enforces the deadline shows exactly `kill_at` (N2). *Exactly* proves that
/// each has confirmed this message, or a later one of the same deadline, and no earlier one: the deadline of a support
/// that is being tightened is the earliest of all, or no process shows it. It was made from a clock reading of this
/// naming, in nanoseconds, so no earlier message had it. A link delivers in order, so whatever was sent before it has
/// been overwritten. Until the naming no later message loosens it: only its removal does, and then the naming has
/// ended. One that is at least as late would prove nothing: the deadline of the TTL may be shown still, while the
/// message with this one is on its way. A process that starts after this has read the deadline of this process by then:
/// its slot is filled before.
pub(super) async fn in_force(enforcers: &mut [DeadlineEnforcer], kill_at: Instant) {
    type Change<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
    async fn changed<T>(confirmed: &mut watch::Receiver<T>) {
        // After the sender is gone, nothing changes.
        if confirmed.changed().await.is_err() {
            pending::<()>().await;
        }
    }
    loop {
        let mut is_everywhere = true;
        let mut changes = Vec::<Change<'_>>::new();
        for enforcer in enforcers.iter_mut() {
            let process = enforcer.borrow_and_update().clone();
            if let Some(mut confirmed) = process {
                is_everywhere &= *confirmed.borrow_and_update() == Some(kill_at);
                changes.push(Box::pin(async move { changed(&mut confirmed).await }));
            }
            changes.push(Box::pin(changed(enforcer)));
        }
        if is_everywhere {
            return;
        }
        select_all(changes).await;
    }
}
