//! [`Leadership`]: a value that must be handed back. Losing it ends the process (I4).

use crate::{
    Entry, Epoch, Incarnation,
    documents::{DocumentAccess, Documents, Partition, RenewalTurn},
    state::LeadershipState,
};
pub use crate::{protocol::ReleaseOutcome, state::Loss};
use std::{
    fmt::{self, Debug},
    sync::Arc,
    time::Duration,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, DisplayDuration, Instant};

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

    /// Fails unless at least so much time is left; see [`Standing::ensure`].
    pub fn ensure(&self, at_least: Duration) -> Result<(), InsufficientTime> {
        self.standing.ensure(at_least)
    }

    /// Hands the leadership back. By calling it, the caller states that the work **has stopped** (I6). Ends the
    /// renewal, disarms the deadman and deletes the record, in that order. Also ends a leadership that was lost.
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
        let (output, loss) = {
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
            (output, loss)
            // The value of the work is dropped here. What it holds may be at work until then (I6).
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

/// The state of one leadership, for the work that runs under it. Read-only and cheap to clone.
// One allocation with the documents of the slot (I11).
#[derive(Clone)]
pub struct Standing(Arc<DocumentAccess<dyn Partition>>);

/// Too little time is left of this leadership.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InsufficientTime {
    /// The leadership is over, or must be handed back. Stop.
    #[error(transparent)]
    Lost(Loss),
    /// The leadership stands, and a renewal may still be confirmed in time. Check again before the step.
    #[error("{} are left of the leadership, and {} are needed", DisplayDuration(*remaining), DisplayDuration(*at_least))]
    TooShort {
        /// How long until the kill deadline.
        remaining: Duration,
        /// How long the step needs.
        at_least: Duration,
    },
}

impl Standing {
    pub(crate) fn new(
        entry: &Entry,
        sent_at: Instant,
        clock: Arc<dyn Clock>,
        partition: impl Partition + 'static,
    ) -> Self {
        Self(Arc::new(DocumentAccess::new(LeadershipState::new(entry, sent_at, clock), partition)))
    }

    /// The fencing token. Pass it to every system that can compare it (I2).
    pub fn epoch(&self) -> Epoch {
        self.state().epoch
    }

    /// Identifies the acquisition of this leadership.
    pub fn incarnation(&self) -> Incarnation {
        self.state().incarnation
    }

    /// When the process is killed unless a renewal (I3) or an answer of its successor comes before. A loss may bring it forward.
    pub fn kill_at(&self) -> Instant {
        self.state().kill_at()
    }

    /// When the write was sent that the storage has confirmed last.
    pub fn renewed_at(&self) -> Instant {
        self.state().confirmed_sent_at()
    }

    /// How long from now until [`Standing::kill_at`]; zero once the leadership is lost.
    pub fn remaining(&self) -> Duration {
        self.state().remaining()
    }

    /// Fails if less time is left. Call it right before a critical step, and begin that only on success. Never blocks.
    pub fn ensure(&self, at_least: Duration) -> Result<(), InsufficientTime> {
        if let Some(loss) = self.loss() {
            return Err(InsufficientTime::Lost(loss.clone()));
        }
        let remaining = self.remaining();
        // Zero fails even a step that needs no time: past the deadline another process may lead.
        if remaining.is_zero() || remaining < at_least {
            return Err(InsufficientTime::TooShort { remaining, at_least });
        }
        Ok(())
    }

    /// Why the leadership is over, if it is.
    pub fn loss(&self) -> Option<&Loss> {
        self.state().loss()
    }

    /// Waits until the leadership is over or must be handed back. Cancel safe; any number of tasks may wait.
    pub async fn lost(&self) -> Loss {
        self.state().until_lost().await
    }

    /// Waits until no renewal has been confirmed for half a TTL, and returns the time that is left: a warning. Returns
    /// at once if the leadership is at risk or over already. Cancel safe; any number of tasks may wait.
    pub async fn at_risk(&self) -> Duration {
        self.state().until_at_risk().await
    }

    /// Returns the documents of the slot that is led, or `None` if the storage keeps none or the elections have ended.
    pub fn documents(&self) -> Option<Documents> {
        Documents::open(&self.0)
    }

    pub(crate) fn renewal_turn(&self) -> Option<RenewalTurn> {
        RenewalTurn::begin(&self.0)
    }

    pub(crate) fn state(&self) -> &LeadershipState {
        self.0.state()
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state().fmt(out)
    }
}
