//! Noticing a guardian that lives and does not listen: stopped (Ctrl-Z does that), or hung.
//!
//! The guardian confirms each deadline that it is told. Once the last one that it confirmed has passed,
//! nothing would clean up after this process any more, so that it must not go on.

use std::{sync::Arc, time::Duration};
use tokio::sync::watch;
use vvm_clock::{Clock, Instant};

/// What a confirmation that is there already may need to be noticed.
const NOTICING: Duration = Duration::from_millis(10);

/// Resolves once the guardian has confirmed, from when `in_force` was subscribed to, that there is no
/// deadline any more: the last thing that it is told of a leadership that it was too late for.
///
/// # Cancel safety
/// May be dropped and called again at will.
pub async fn listens_again(mut in_force: watch::Receiver<Option<Instant>>) {
    while in_force.changed().await.is_ok() && in_force.borrow_and_update().is_some() {}
}

/// Resolves once the deadline that the guardian confirmed last has passed.
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
