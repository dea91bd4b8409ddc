//! [`Joined`]: a task that is started on a [`Spawn`] and can be joined. Panics are caught.

use futures_util::FutureExt;
use ielections::Spawn;
use std::{any::Any, panic::AssertUnwindSafe, sync::Arc};
use tokio::sync::oneshot;

/// A started task.
#[derive(Debug)]
pub(crate) struct Joined<T>(oneshot::Receiver<Result<T, Arc<str>>>);

/// A task ended without a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum EndedEarly {
    /// It panicked, with this message.
    Panicked(Arc<str>),
    /// Its runtime dropped it.
    Dropped,
}

impl<T: Send + 'static> Joined<T> {
    /// Starts a task for `work`.
    pub(crate) fn spawn(
        spawn: &dyn Spawn,
        name: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        let (sender, outcome) = oneshot::channel();
        let work = caught(work);
        let task = async move {
            // The receiver may be gone.
            let _ = sender.send(work.await);
        };
        spawn.spawn(name, Box::pin(task));
        Self(outcome)
    }

    /// Waits for the task to end.
    ///
    /// # Cancel safety
    /// It may be dropped and called again. A call after a result returns [`EndedEarly::Dropped`].
    pub(crate) async fn join(&mut self) -> Result<T, EndedEarly> {
        match (&mut self.0).await {
            Ok(outcome) => outcome.map_err(EndedEarly::Panicked),
            Err(_) => Err(EndedEarly::Dropped),
        }
    }
}

/// Drives `work`, and turns a panic into its message.
#[expect(
    clippy::redundant_async_block,
    reason = "it drops `work` within, so that a panic of a destructor is caught, too"
)]
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Arc<str>> {
    // Unwind safe: after a panic, nothing reads the state that it left.
    AssertUnwindSafe(async move { work.await }).catch_unwind().await.map_err(message)
}

fn message(payload: Box<dyn Any + Send>) -> Arc<str> {
    if let Some(text) = payload.downcast_ref::<&str>() {
        Arc::from(*text)
    } else if let Some(text) = payload.downcast_ref::<String>() {
        Arc::from(text.as_str())
    } else {
        Arc::from("the payload is not text")
    }
}
