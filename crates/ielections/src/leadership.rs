//! [`Leadership`]: a value that must be handed back. Losing it ends the process (I4).

pub use crate::{
    loss::Loss,
    protocol::ReleaseOutcome,
    standing::{InsufficientTime, Standing},
};

use crate::{Epoch, Incarnation};
use std::{fmt::Debug, sync::Arc, time::Duration};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// A leadership that is held. The engine renews it until it is handed back or lost.
///
/// Only handing back stopped work disarms the deadman. After a drop, a panic or a cancelled task it is
/// unknown what still runs, so the renewal stops and the deadline stays armed (I4).
#[must_use = "dropping a leadership stops its renewal and ends the process at the kill deadline"]
#[derive(Debug)]
pub struct Leadership {
    standing: Standing,
    lease: usize,
    /// `None` once the leadership was handed back.
    engine: Option<Arc<dyn LeaseEnd>>,
}

/// How a leadership reports its end to the engine, without the type of the key.
pub(crate) trait LeaseEnd: Send + Sync + Debug {
    /// The work has stopped. The engine answers with the outcome, or drops `reply` if it has ended.
    fn hand_back(&self, lease: usize, reply: oneshot::Sender<ReleaseOutcome>);
    /// The leadership was dropped without being handed back.
    fn dropped(&self, lease: usize);
}

/// How [`Leadership::run`] ended.
#[derive(Debug)]
pub struct Completed<T> {
    /// The work's return value.
    pub output: T,
    /// Why the leadership was lost, if that ended the work.
    pub loss: Option<Loss>,
    /// The outcome of the release.
    pub release: ReleaseOutcome,
}

impl Leadership {
    pub(crate) fn new(standing: Standing, lease: usize, engine: Arc<dyn LeaseEnd>) -> Self {
        Self { standing, lease, engine: Some(engine) }
    }

    /// The state of this leadership, for services: read-only and cheap to clone.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The fencing token.
    pub fn epoch(&self) -> Epoch {
        self.standing.epoch()
    }

    /// Identifies the acquisition of this leadership.
    pub fn incarnation(&self) -> Incarnation {
        self.standing.incarnation()
    }

    /// Waits until the leadership is lost or must be handed back; see [`Standing::lost`].
    pub async fn lost(&self) -> Loss {
        self.standing.lost().await
    }

    /// How long until the kill deadline; see [`Standing::remaining`].
    pub fn remaining(&self) -> Duration {
        self.standing.remaining()
    }

    /// Checks that at least so much time is left; see [`Standing::ensure`].
    ///
    /// # Errors
    /// [`InsufficientTime`]: don't begin the step.
    pub fn ensure(&self, at_least: Duration) -> Result<(), InsufficientTime> {
        self.standing.ensure(at_least)
    }

    /// Hands the leadership back. By calling it, the caller states that the work **has stopped** (I6). Ends
    /// the renewal, disarms the deadman and deletes the record, in that order. Also ends a leadership that
    /// was lost.
    ///
    /// # Cancel safety
    /// The call itself hands back. The future only waits for the outcome, and may be dropped.
    pub fn release(mut self) -> impl Future<Output = ReleaseOutcome> + Send + use<> {
        let (reply, outcome) = oneshot::channel();
        if let Some(engine) = self.engine.take() {
            engine.hand_back(self.lease, reply);
        }
        async move { outcome.await.unwrap_or(ReleaseOutcome::StillArmed) }
    }

    /// Runs `work` while leading, and hands back when it has ended.
    ///
    /// The work gets a token, cancelled when the leadership is lost or must be handed back, and the standing.
    /// The work is never dropped before it ends: this waits for it, and the deadman bounds the wait.
    ///
    /// # Cancel safety
    /// Not cancel safe. Dropping the future drops the work and the leadership, which proves nothing about
    /// what the work spawned, so the kill deadline stays armed (I4).
    pub async fn run<Work: Future>(
        self,
        work: impl FnOnce(CancellationToken, Standing) -> Work,
    ) -> Completed<Work::Output> {
        let stop = CancellationToken::new();
        let mut work = std::pin::pin!(work(stop.clone(), self.standing.clone()));
        let early = tokio::select! {
            biased;
            output = &mut work => Some(output),
            _ = self.lost() => None,
        };
        let loss = self.standing.loss().cloned();
        stop.cancel();
        let output = match early {
            Some(output) => output,
            None => work.await,
        };
        let release = self.release().await;
        Completed { output, loss, release }
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.dropped(self.lease);
        }
    }
}
