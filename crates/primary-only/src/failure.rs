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
pub(crate) struct Panicked(pub(crate) Arc<str>);

pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    env::caught(work).await.map_err(Panicked)
}

pub(crate) fn caught_call<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    // Unwind safe: after a panic, nothing reads the state that it left.
    let called = catch_unwind(AssertUnwindSafe(call));
    called.map_err(|payload| Panicked(env::panic_message(&*payload).into()))
}
