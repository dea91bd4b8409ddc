//! Detecting a guardian that is stopped (as by Ctrl-Z) or hangs.
//!
//! The guardian confirms each deadline. Once the last confirmed one has passed, it would not clean up after
//! this process, so this process must not go on.

use std::{sync::Arc, time::Duration};
use tokio::sync::watch;
use vvm_clock::{Clock, Instant};

/// The time for reading a confirmation that has arrived already.
const NOTICING: Duration = Duration::from_millis(10);

/// Waits until the guardian confirms that no deadline is set, which is the last message about a leadership.
/// Counts confirmations since `in_force` was subscribed to.
///
/// # Cancel safety
/// May be dropped and called again at will.
pub async fn listens_again(mut in_force: watch::Receiver<Option<Instant>>) {
    while in_force.changed().await.is_ok() && in_force.borrow_and_update().is_some() {}
}

/// Waits until the deadline that the guardian confirmed last has passed.
///
/// # Cancel safety
/// May be dropped and called again at will.
pub async fn lapsed(mut in_force: watch::Receiver<Option<Instant>>, clock: &Arc<dyn Clock>) {
    loop {
        let confirmed = in_force.borrow_and_update().unwrap_or(Instant::NEVER);
        tokio::select! {
            biased;
            Ok(()) = in_force.changed() => {}
            () = clock.sleep_until(confirmed.after(NOTICING)) => return,
        }
    }
}
