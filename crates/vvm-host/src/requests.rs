//! Operators' requests to candidates and leaders: `vvm pause` and `vvm step-down`.
//!
//! [`RequestHandler`] handles them. [`may_work`] keeps work from starting in a pause.

mod handler;

pub(crate) use handler::RequestHandler;

use crate::host_storage::HostStorage;
use ielections::Holder;
use std::{sync::Arc, time::Duration};
use vvm_clock::Clock;
use vvm_storage::Pause;

/// Why a leader gives its leadership up.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Demand {
    /// An operator paused the name.
    #[error("paused by {}", .0.by())]
    Paused(Pause),
    /// The pause could not be read, so no work was started.
    #[error("could not read whether the name is paused: {0}")]
    PauseUnseen(String),
    /// An operator requested a step-down.
    #[error("asked to step down{}", to.as_ref().map(|to| format!(" in favour of {to}")).unwrap_or_default())]
    SteppingDown {
        /// The standby to lead next; `None` for any.
        to: Option<Holder>,
    },
}

impl Demand {
    /// Returns the fields of a log event: one word for the reason, the operator who paused, and the standby
    /// that is to lead next.
    pub(crate) fn fields(&self) -> (&'static str, Option<&str>, Option<&str>) {
        match self {
            Self::Paused(pause) => ("paused", Some(pause.author()), None),
            Self::PauseUnseen(_) => ("pause_unseen", None, None),
            Self::SteppingDown { to } => ("stepping_down", None, to.as_ref().map(Holder::as_str)),
        }
    }
}

/// Decides whether work may start under a leadership that was just acquired.
///
/// **No work runs from the moment `vvm pause` reports success until `vvm resume`.** `vvm pause` writes the
/// pause. Then it reads every slot, linearizably, until it has seen each of them vacant once. Take a
/// leadership of one of these slots. Its claim is applied either before that read or after it.
///
/// - Before: the read finds the slot vacant, so the leadership is over. It ended by its own release, before
///   which its work had stopped (I6), or by a take-over, before which its process was dead (I1). The
///   leadership that took over ended in the same way.
/// - After: the claim comes after the pause was written. The read here is sent after the claim was confirmed
///   and is linearizable, so it finds the pause, which stands until an operator resumes. No work starts.
///
/// A record that `vvm pause` has seen unchanged for its TTL counts as vacant: its leader is dead by then, as
/// for a take-over (I1).
///
/// Reads again every `retry_pause` while the storage fails, for `timeout` in all.
///
/// # Errors
/// The reason to give the leadership up.
///
/// # Cancel safety
/// May be dropped at will.
pub(crate) async fn may_work(
    storage: &HostStorage,
    clock: &Arc<dyn Clock>,
    timeout: Duration,
    retry_pause: Duration,
) -> Result<(), Demand> {
    let give_up_at = clock.now().after(timeout);
    let mut cause = "it does not answer".to_owned();
    loop {
        let pause = tokio::select! {
            biased;
            pause = storage.storage.standing_pause(&storage.cluster) => pause,
            () = clock.sleep_until(give_up_at) => return Err(Demand::PauseUnseen(cause)),
        };
        match pause {
            Ok(None) => return Ok(()),
            Ok(Some(pause)) => return Err(Demand::Paused(pause)),
            Err(error) => cause = error.to_string(),
        }
        if clock.now() >= give_up_at {
            return Err(Demand::PauseUnseen(cause));
        }
        clock.sleep_until(clock.now().after(retry_pause).min(give_up_at)).await;
    }
}
