//! What people's code fails with, and panics of theirs turned into values.

use futures_util::FutureExt;
use std::{
    any::Any,
    error::Error,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// Whatever a task or a service fails with.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A failure that is kept and read by whoever asks.
pub type Failure = Arc<dyn Error + Send + Sync>;

/// Code that was called panicked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it panicked: {0}")]
pub(crate) struct Panicked(pub(crate) Arc<str>);

/// Drives `work`; a panic becomes a value.
#[expect(
    clippy::redundant_async_block,
    reason = "it drops `work` within, so that a destructor's panic is caught, too"
)]
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    // Unwind safe: whatever the panic left half-done is not looked at any more.
    AssertUnwindSafe(async move { work.await }).catch_unwind().await.map_err(message)
}

/// Calls `call`; a panic becomes a value.
pub(crate) fn caught_call<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(call)).map_err(message)
}

fn message(payload: Box<dyn Any + Send>) -> Panicked {
    Panicked(if let Some(text) = payload.downcast_ref::<&str>() {
        Arc::from(*text)
    } else if let Some(text) = payload.downcast_ref::<String>() {
        Arc::from(text.as_str())
    } else {
        Arc::from("a payload that is no text")
    })
}
