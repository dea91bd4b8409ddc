//! [`State`]: shared by the tasks and handles of a VVM.

use crate::{Leading, NotLeading, Problem};
use std::sync::OnceLock;
use tokio_util::sync::CancellationToken;

/// Each cell is set once, and each token is cancelled once.
#[derive(Debug)]
pub(crate) struct State<K> {
    /// The first problem (I8).
    problem: OnceLock<Problem>,
    /// Cancelled when `problem` is set.
    raised: CancellationToken,
    leading: OnceLock<Leading<K>>,
    /// Cancelled when the services are ready.
    ready: CancellationToken,
    /// Cancelled when the VVM begins to stop.
    stop: CancellationToken,
    /// Cancelled when the VVM has stopped.
    done: CancellationToken,
}

impl<K: Clone> State<K> {
    pub(crate) fn new() -> Self {
        Self {
            problem: OnceLock::new(),
            raised: CancellationToken::new(),
            leading: OnceLock::new(),
            ready: CancellationToken::new(),
            stop: CancellationToken::new(),
            done: CancellationToken::new(),
        }
    }

    /// Reports a problem, which shuts the VVM down. Only the first one is kept (I8).
    pub(crate) fn report(&self, problem: Problem) {
        match self.problem.set(problem.clone()) {
            // The services have done their work.
            Ok(()) if matches!(problem, Problem::Ended { failure: None, .. }) => {
                tracing::info!(%problem, "the VVM shuts down");
            }
            Ok(()) => tracing::error!(%problem, "the VVM shuts down"),
            Err(_) => tracing::warn!(%problem, "another problem while the VVM shuts down"),
        }
        self.raised.cancel();
        self.stop.cancel();
    }

    pub(crate) fn problem(&self) -> Option<&Problem> {
        self.problem.get()
    }

    /// Waits for a problem, or until the VVM has stopped.
    pub(crate) async fn problem_or_done(&self) -> Option<&Problem> {
        tokio::select! {
            biased;
            () = self.raised.cancelled() => {}
            () = self.done.cancelled() => {}
        }
        self.problem()
    }

    pub(crate) fn services_are_ready(&self, leading: Leading<K>) {
        // The launcher calls this once.
        drop(self.leading.set(leading));
        self.ready.cancel();
    }

    /// Waits until the services are ready, or never will be.
    pub(crate) async fn leading(&self) -> Result<Leading<K>, NotLeading> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = self.ready.cancelled() => {}
        }
        match self.leading.get() {
            Some(leading) if !self.is_stopping() => Ok(leading.clone()),
            _ => Err(self.problem().cloned().map_or(NotLeading::ShutDown, NotLeading::Problem)),
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Waits until the VVM begins to stop.
    pub(crate) async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    pub(crate) fn has_stopped(&self) {
        self.done.cancel();
    }

    /// Waits until the VVM has stopped.
    pub(crate) async fn stopped(&self) {
        self.done.cancelled().await;
    }
}
