//! What a VVM's tasks and handles share: the first problem, and how far the VVM has come.

use crate::{Leading, NotLeading, Problem};
use std::sync::OnceLock;
use tokio_util::sync::CancellationToken;

/// Everything here only ever moves forward: each cell is written once, each token cancelled once.
#[derive(Debug)]
pub(crate) struct State<K> {
    /// The first problem (I8).
    problem: OnceLock<Problem>,
    /// A problem was written.
    raised: CancellationToken,
    leading: OnceLock<Leading<K>>,
    /// The services are up.
    up: CancellationToken,
    /// The VVM is to stop, or stopping, or stopped.
    stop: CancellationToken,
    /// The VVM has stopped.
    done: CancellationToken,
}

impl<K: Clone> State<K> {
    pub(crate) fn new() -> Self {
        Self {
            problem: OnceLock::new(),
            raised: CancellationToken::new(),
            leading: OnceLock::new(),
            up: CancellationToken::new(),
            stop: CancellationToken::new(),
            done: CancellationToken::new(),
        }
    }

    /// Takes note of a problem, which shuts the VVM down. The first is what everybody gets to see (I8).
    pub(crate) fn report(&self, problem: Problem) {
        match self.problem.set(problem.clone()) {
            Ok(()) => tracing::error!(%problem, "the VVM shuts down"),
            Err(_) => tracing::warn!(%problem, "another problem while the VVM shuts down"),
        }
        self.raised.cancel();
        self.stop.cancel();
    }

    pub(crate) fn problem(&self) -> Option<&Problem> {
        self.problem.get()
    }

    /// Resolves when there is a problem, or when there will be none.
    pub(crate) async fn problem_or_done(&self) -> Option<&Problem> {
        tokio::select! {
            biased;
            () = self.raised.cancelled() => {}
            () = self.done.cancelled() => {}
        }
        self.problem()
    }

    pub(crate) fn services_are_up(&self, leading: Leading<K>) {
        // The launcher says this once.
        drop(self.leading.set(leading));
        self.up.cancel();
    }

    /// Resolves when the services are up, or when they won't be.
    pub(crate) async fn leading(&self) -> Result<Leading<K>, NotLeading> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = self.up.cancelled() => {}
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

    /// Resolves when the VVM is to stop.
    pub(crate) async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    pub(crate) fn has_stopped(&self) {
        self.done.cancel();
    }

    /// Resolves when the VVM has stopped.
    pub(crate) async fn stopped(&self) {
        self.done.cancelled().await;
    }
}
