//! Errors of services and tasks, and their panics as values.

use ielections::env;
use std::{
    error::Error,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// An error of a service or a task.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// An error of a service or a task, shared by everything that reports it.
pub type Failure = Arc<dyn Error + Send + Sync>;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it panicked: {0}")]
pub(crate) struct PanicError(pub(crate) Arc<str>);

pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, PanicError> {
    env::caught(work).await.map_err(PanicError)
}

pub(crate) fn caught_call<T>(call: impl FnOnce() -> T) -> Result<T, PanicError> {
    // Unwind safe: after a panic, nothing reads the state that it left.
    let called = catch_unwind(AssertUnwindSafe(call));
    called.map_err(|payload| PanicError(env::panic_message(&*payload).into()))
}
