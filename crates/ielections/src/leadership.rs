//! [`Leadership`]: a value that must be handed back. Losing it ends the process (I4).

pub use crate::{
    loss::Loss,
    protocol::ReleaseOutcome,
    standing::{InsufficientTime, Standing},
};

use crate::{Epoch, Incarnation, engine::Hold};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A leadership that is held, renewed by the engine until it is handed back or lost.
///
/// There is no way to stop its deadman but to hand back a leadership whose work has stopped: dropping it, a
/// panic, a cancelled task stop the renewal and leave the deadline armed (I4), since nobody knows then what
/// still runs.
#[must_use = "dropping a leadership stops its renewal and ends the process at the kill deadline"]
#[derive(Debug)]
pub struct Leadership {
    hold: Hold,
}

/// How [`Leadership::run`] ended.
#[derive(Debug)]
pub struct Completed<T> {
    /// What the work returned.
    pub output: T,
    /// Why the leadership was lost, if that is what made the work end.
    pub loss: Option<Loss>,
    /// What became of the record.
    pub release: ReleaseOutcome,
}

impl Leadership {
    pub(crate) fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// What services get: read-only, cheap to clone.
    pub fn standing(&self) -> &Standing {
        self.hold.standing()
    }

    /// The fencing token.
    pub fn epoch(&self) -> Epoch {
        self.standing().epoch()
    }

    /// Which acquisition this is.
    pub fn incarnation(&self) -> Incarnation {
        self.standing().incarnation()
    }

    /// Resolves when the leadership is lost or must be handed back; see [`Standing::lost`].
    pub async fn lost(&self) -> Loss {
        self.standing().lost().await
    }

    /// How long until the kill deadline; see [`Standing::remaining`].
    pub fn remaining(&self) -> Duration {
        self.standing().remaining()
    }

    /// Whether so much time is left; see [`Standing::ensure`].
    ///
    /// # Errors
    /// [`InsufficientTime`]: don't begin the step.
    pub fn ensure(&self, at_least: Duration) -> Result<(), InsufficientTime> {
        self.standing().ensure(at_least)
    }

    /// Hands the leadership back: the caller's word that its work **has stopped** (I6). Ends the renewal,
    /// disarms, deletes the record, in that order. Also ends a leadership that was lost.
    ///
    /// # Cancel safety
    /// The word is given when this is called, not when the future is polled: the future only waits for the
    /// outcome.
    pub fn release(self) -> impl Future<Output = ReleaseOutcome> + Send + use<> {
        self.hold.hand_back()
    }

    /// Runs `work` while leading, and hands back when it has ended.
    ///
    /// The work gets a token, cancelled when the leadership is lost or must be handed back, and the standing.
    /// It is never dropped half-way: this waits until it ends, with the deadman behind it.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future drops the work and the leadership, which proves nothing about
    /// what the work spawned, so the kill deadline stays armed (I4).
    pub async fn run<Work: Future>(
        self,
        work: impl FnOnce(CancellationToken, Standing) -> Work,
    ) -> Completed<Work::Output> {
        let stop = CancellationToken::new();
        let mut work = std::pin::pin!(work(stop.clone(), self.standing().clone()));
        let early = tokio::select! {
            biased;
            output = &mut work => Some(output),
            _ = self.lost() => None,
        };
        let loss = self.standing().loss().cloned();
        stop.cancel();
        let output = match early {
            Some(output) => output,
            None => work.await,
        };
        let release = self.release().await;
        Completed { output, loss, release }
    }
}
