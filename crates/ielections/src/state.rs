//! [`LeadershipState`]: until when one leadership is valid, and why it ended. The engine writes it; the work
//! and its documents read it.

use crate::{Entry, Epoch, Incarnation, Timing, loss::Loss};
use futures_util::future::select;
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;
use vvm_clock::{Clock, Instant};

pub(crate) struct LeadershipState {
    pub(crate) epoch: Epoch,
    pub(crate) incarnation: Incarnation,
    pub(crate) timing: Timing,
    pub(crate) clock: Arc<dyn Clock>,
    /// When the last confirmed write was sent, in the clock's nanoseconds. All deadlines follow from it (I3).
    confirmed_sent_at: AtomicU64,
    loss: OnceLock<Loss>,
    /// Notified when the leadership is lost.
    lost: Notify,
}

impl LeadershipState {
    pub(crate) fn new(entry: &Entry, sent_at: Instant, clock: Arc<dyn Clock>) -> Self {
        Self {
            epoch: entry.epoch,
            incarnation: entry.incarnation(),
            timing: Timing::of(entry.ttl),
            clock,
            confirmed_sent_at: AtomicU64::new(sent_at.as_nanos()),
            loss: OnceLock::new(),
            lost: Notify::new(),
        }
    }

    /// When the process is killed unless a renewal is confirmed before (I3).
    pub(crate) fn kill_at(&self) -> Instant {
        self.timing.kill_at(self.confirmed_sent_at())
    }

    /// How long until [`Self::kill_at`]; zero once the leadership is lost.
    pub(crate) fn remaining(&self) -> Duration {
        match self.loss() {
            Some(_) => Duration::ZERO,
            None => self.clock.now().until(self.kill_at()),
        }
    }

    pub(crate) fn loss(&self) -> Option<&Loss> {
        self.loss.get()
    }

    /// Why this leadership may not write any more. While elections close, it still may.
    pub(crate) fn over(&self) -> Option<Loss> {
        match self.loss() {
            Some(loss) if *loss != Loss::Closing => Some(loss.clone()),
            // Past the deadline, and the engine has not run to find out.
            _ if self.clock.now() >= self.kill_at() => Some(Loss::Suspended),
            _ => None,
        }
    }

    /// Waits until the leadership is lost.
    pub(crate) async fn until_lost(&self) -> Loss {
        self.until(|| self.loss().cloned(), || None).await
    }

    /// Waits until this leadership may not write any more.
    pub(crate) async fn until_over(&self) -> Loss {
        self.until(|| self.over(), || Some(self.kill_at())).await
    }

    /// Waits until no renewal has been confirmed for half a TTL, or the leadership is lost.
    pub(crate) async fn until_at_risk(&self) -> Duration {
        let at_risk_at = || self.timing.at_risk_at(self.confirmed_sent_at());
        let is_at_risk = || self.loss().is_some() || self.clock.now() >= at_risk_at();
        self.until(|| is_at_risk().then(|| self.remaining()), || Some(at_risk_at())).await
    }

    /// Waits for `condition`. Evaluates it at once, on a loss, and at the instant `wake_at`, if there is one.
    async fn until<T>(&self, condition: impl Fn() -> Option<T>, wake_at: impl Fn() -> Option<Instant>) -> T {
        loop {
            let lost = self.lost.notified();
            tokio::pin!(lost);
            // Registered before the condition is evaluated, or a loss in between would be missed.
            lost.as_mut().enable();
            if let Some(value) = condition() {
                return value;
            }
            match wake_at() {
                Some(wake_at) => drop(select(lost, self.clock.sleep_until(wake_at)).await),
                None => lost.await,
            }
        }
    }

    fn confirmed_sent_at(&self) -> Instant {
        Instant::from_nanos(self.confirmed_sent_at.load(Ordering::Acquire))
    }

    pub(crate) fn confirm(&self, sent_at: Instant) {
        // Only ever later (I3): an older confirmation that arrives last must not undo a newer one.
        self.confirmed_sent_at.fetch_max(sent_at.as_nanos(), Ordering::AcqRel);
    }

    /// Ends the leadership. The first loss stands (I8).
    pub(crate) fn lose(&self, loss: Loss) {
        if self.loss.set(loss).is_ok() {
            self.lost.notify_waiters();
        }
    }
}

impl fmt::Debug for LeadershipState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.loss() {
            Some(loss) => write!(out, "Standing({:?}, {loss})", self.epoch),
            None => write!(out, "Standing({:?}, {:?} left)", self.epoch, self.remaining()),
        }
    }
}
