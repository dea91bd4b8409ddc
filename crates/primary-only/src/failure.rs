//! Errors of services and tasks, and their panics as values.

use futures_util::FutureExt;
use ielections::env::panic_message;
use std::{
    any::Any,
    error::Error,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// An error of a service or a task.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// An error of a service or a task, shared by everything that reports it.
pub type Failure = Arc<dyn Error + Send + Sync>;

/// A panic of a service's or a task's code, with its message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it panicked: {0}")]
pub(crate) struct Panicked(pub(crate) Arc<str>);

/// Drives `work`, and turns a panic into an error.
#[expect(
    clippy::redundant_async_block,
    reason = "it drops `work` within, so that a panic of a destructor is caught, too"
)]
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    // Unwind safe: after a panic, nothing reads the state that it left.
    AssertUnwindSafe(async move { work.await }).catch_unwind().await.map_err(message)
}

/// Calls `call`, and turns a panic into an error.
pub(crate) fn caught_call<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(call)).map_err(message)
}

fn message(payload: Box<dyn Any + Send>) -> Panicked {
    Panicked(panic_message(&*payload).into())
}
