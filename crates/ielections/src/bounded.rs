//! [`bounded`] is the one function of the crate that may drop an unanswered write, which counts as `Unknown` (I7, I10).

use crate::env::panic_message;
use futures_util::future::{AbortRegistration, Abortable, Either, FutureExt, select};
use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};
use vvm_clock::{Clock, DisplayDuration};

#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("no answer within {}", DisplayDuration(*.0))]
    TimedOut(Duration),
    #[error("the storage driver panicked: {0}")]
    Panicked(String),
}

pub(crate) struct Limit {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timeout: Duration,
    /// For reads only: the caller aborts it when it no longer waits for the answer.
    pub(crate) withdrawn: Option<AbortRegistration>,
}

impl Limit {
    async fn reached(self) {
        let expiry = self.clock.sleep(self.timeout);
        match self.withdrawn {
            Some(withdrawn) => drop(Abortable::new(expiry, withdrawn).await),
            None => expiry.await,
        }
    }
}

/// Returns the call's answer, or `unanswered` once the limit is reached or the driver has panicked: its bug must not
/// end the engine, which alone can disarm a deadline. A call that is answered at its first poll costs no timer.
pub(crate) async fn bounded<T>(
    call: impl Future<Output = T> + Unpin,
    limit: Limit,
    unanswered: fn(NoAnswer) -> T,
) -> T {
    let timeout = limit.timeout;
    // Unwind safe: the call is not polled after its panic, and a driver answers for its own shared state.
    let call = AssertUnwindSafe(call).catch_unwind();
    match select(call, pin!(limit.reached())).await {
        Either::Left((Ok(answer), _)) => answer,
        Either::Left((Err(payload), _)) => {
            unanswered(NoAnswer::Panicked(panic_message(&*payload).to_owned()))
        }
        Either::Right(((), _)) => unanswered(NoAnswer::TimedOut(timeout)),
    }
}
