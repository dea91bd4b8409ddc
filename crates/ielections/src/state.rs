//! [`LeadershipState`]: until when one leadership is valid, and why it ended.

use crate::{Entry, Epoch, Incarnation, Timing};
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
use vvm_clock::{Clock, DisplayDuration, Instant};

pub(crate) struct LeadershipState {
    pub(crate) epoch: Epoch,
    pub(crate) incarnation: Incarnation,
    pub(crate) timing: Timing,
    pub(crate) clock: Arc<dyn Clock>,
    /// When the last confirmed write was sent, in the clock's nanoseconds. All deadlines follow from it (I3).
    confirmed_sent_at: AtomicU64,
    /// The kill deadline of the support period, in the clock's nanoseconds, while a successor is named.
    support_kill_at: AtomicU64,
    /// The kill deadline that a loss brought forward (I4). Set before the loss: who sees the loss sees this.
    tightened_to: AtomicU64,
    /// Of a leader that may have a successor.
    support_timing: OnceLock<Timing>,
    loss: OnceLock<Loss>,
    /// [`Loss::Closing`]. Another loss may follow it.
    closing: OnceLock<Loss>,
    /// A loss, or a deadline that is earlier now.
    changed: Notify,
}

impl LeadershipState {
    pub(crate) fn new(entry: &Entry, sent_at: Instant, clock: Arc<dyn Clock>) -> Self {
        Self {
            epoch: entry.epoch,
            incarnation: entry.incarnation(),
            timing: Timing::new(entry.ttl),
            clock,
            confirmed_sent_at: AtomicU64::new(sent_at.as_nanos()),
            support_kill_at: AtomicU64::new(Instant::NEVER.as_nanos()),
            tightened_to: AtomicU64::new(Instant::NEVER.as_nanos()),
            support_timing: OnceLock::new(),
            loss: OnceLock::new(),
            closing: OnceLock::new(),
            changed: Notify::new(),
        }
    }

    /// The earliest deadline: of the TTL (I3), of the support period while a successor is named, or of a loss.
    pub(crate) fn kill_at(&self) -> Instant {
        let others = [&self.support_kill_at, &self.tightened_to];
        let others = others.map(|at| Instant::from_nanos(at.load(Ordering::Acquire)));
        others.into_iter().fold(self.lease_kill_at(), Instant::min)
    }

    pub(crate) fn lease_kill_at(&self) -> Instant {
        self.timing.kill_at(self.confirmed_sent_at())
    }

    pub(crate) fn renewal_wait(&self) -> Duration {
        let is_named = self.support_kill_at.load(Ordering::Acquire) != Instant::NEVER.as_nanos();
        self.support_timing.get().filter(|_| is_named).unwrap_or(&self.timing).renewal_wait()
    }

    pub(crate) fn remaining(&self) -> Duration {
        match self.loss() {
            Some(_) => Duration::ZERO,
            None => self.clock.now().until(self.kill_at()),
        }
    }

    pub(crate) fn loss(&self) -> Option<&Loss> {
        self.loss.get().or_else(|| self.closing.get())
    }

    /// Why this leadership may not write any more. While elections close, it still may.
    pub(crate) fn why_over(&self) -> Option<Loss> {
        match self.loss.get() {
            Some(loss) => Some(loss.clone()),
            // Past the deadline, and the engine has not run to find out.
            None if self.clock.now() >= self.kill_at() => Some(Loss::Suspended),
            None => None,
        }
    }

    pub(crate) async fn until_lost(&self) -> Loss {
        self.until(|| self.loss().cloned(), || None).await
    }

    pub(crate) async fn until_over(&self) -> Loss {
        self.until(|| self.why_over(), || Some(self.kill_at())).await
    }

    pub(crate) async fn until_at_risk(&self) -> Duration {
        let at_risk_at = || self.timing.at_risk_at(self.confirmed_sent_at());
        let is_at_risk = || self.loss().is_some() || self.clock.now() >= at_risk_at();
        self.until(|| is_at_risk().then(|| self.remaining()), || Some(at_risk_at())).await
    }

    /// Waits for `condition`. Evaluates it at once, on a change, and at the instant `wake_at`, if there is one.
    async fn until<T>(&self, condition: impl Fn() -> Option<T>, wake_at: impl Fn() -> Option<Instant>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the condition is evaluated, or a loss in between would be missed.
            changed.as_mut().enable();
            if let Some(value) = condition() {
                return value;
            }
            match wake_at() {
                Some(wake_at) => drop(select(changed, self.clock.sleep_until(wake_at)).await),
                None => changed.await,
            }
        }
    }

    pub(crate) fn confirmed_sent_at(&self) -> Instant {
        Instant::from_nanos(self.confirmed_sent_at.load(Ordering::Acquire))
    }

    pub(crate) fn confirm(&self, sent_at: Instant) {
        // Only ever later (I3): an older confirmation that arrives last must not undo a newer one.
        self.confirmed_sent_at.fetch_max(sent_at.as_nanos(), Ordering::AcqRel);
    }

    pub(crate) fn set_support_timing(&self, timing: Timing) {
        let _ = self.support_timing.set(timing);
    }

    /// Sets the kill deadline of the support period; [`Instant::NEVER`] if no successor is named any more.
    pub(crate) fn set_support_kill_at(&self, kill_at: Instant) {
        self.support_kill_at.store(kill_at.as_nanos(), Ordering::Release);
        // One that waits for the later deadline of the TTL must not go on waiting for it.
        self.changed.notify_waiters();
    }

    pub(crate) fn tighten(&self, kill_at: Instant) {
        self.tightened_to.fetch_min(kill_at.as_nanos(), Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// Ends the leadership. The first loss stands (I8), except that elections which close end it only for the work.
    pub(crate) fn lose(&self, loss: Loss) {
        let cell = if loss == Loss::Closing { &self.closing } else { &self.loss };
        if cell.set(loss).is_ok() {
            self.changed.notify_waiters();
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

/// Why a leadership is over, or must be handed back.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Loss {
    /// The slot has the record of another leadership.
    #[error("taken over by {} at epoch {}", by.holder, by.epoch)]
    Stolen {
        /// That record.
        by: Box<Entry>,
    },
    /// The record is gone: another program or the operator deleted it.
    #[error("the record is gone from the storage")]
    Vanished,
    /// The storage went back in time: the record is gone, and its epoch with it, or an earlier version of it is back.
    #[error(
        "the storage went back in time: it showed epoch {held} before and {} now; \
         was it restored from a backup?",
        if *found == Some(*held) { "an older record of it".into() } else { Epoch::or_none(*found).to_string() }
    )]
    EpochWentBack {
        /// The epoch of this leadership.
        held: Epoch,
        /// The last epoch of the slot now. The same, if the slot has an earlier version of the record.
        found: Option<Epoch>,
    },
    /// The storage was deleted, replaced or restored.
    #[error("the storage was replaced: {cause}")]
    StorageReplaced {
        /// The storage's reason.
        cause: Arc<str>,
    },
    /// No renewal was confirmed in time.
    #[error(
        "no renewal was confirmed in time{}",
        last_failure.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default()
    )]
    StorageUnreachable {
        /// The last failure of an attempt, if one failed.
        last_failure: Option<Arc<str>>,
    },
    /// While a successor was named, neither it nor the storage has answered for 0.65 of the support period.
    #[error(
        "neither the successor nor the storage has answered in time (support period {})",
        DisplayDuration(*period)
    )]
    SupportEnded {
        /// The support period.
        period: Duration,
    },
    /// This process was suspended, stopped or starved for so long that another one may have taken over.
    #[error("this process did not run for so long that the leadership may have passed on")]
    Suspended,
    /// The elections are closing; the record is renewed until the leadership is handed back, or another loss follows.
    #[error("the elections are closing")]
    Closing,
    /// The leadership was handed back.
    #[error("the leadership was handed back")]
    HandedBack,
    /// The elections' task has ended: its runtime was shut down, or a part of its environment panicked. No
    /// renewal follows, and only that task could disarm: the process ends at the kill deadline (I4).
    #[error(
        "the elections' task has ended (was its runtime shut down?): the process ends at the kill deadline"
    )]
    EngineEnded,
    /// The handle was dropped without being handed back: renewal has stopped and the deadline stays armed (I4).
    #[error("the leadership was dropped without being handed back")]
    Dropped,
}

impl Loss {
    /// Whether the storage showed that the record is no longer ours, so there is none to release.
    pub fn is_mismatch(&self) -> bool {
        match self {
            Self::EpochWentBack { held, found } => *found != Some(*held),
            _ => matches!(self, Self::Stolen { .. } | Self::Vanished),
        }
    }

    /// Whether another process may lead already, so that the kill deadline is brought forward.
    pub fn tightens_deadline(&self) -> bool {
        self.is_mismatch() || matches!(self, Self::StorageReplaced { .. } | Self::EpochWentBack { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_about_a_storage_that_went_back_shows_plain_epochs() {
        let held = Epoch::new(5).unwrap();
        let message = |found| Loss::EpochWentBack { held, found }.to_string();
        assert!(message(None).contains("it showed epoch 5 before and no epoch now"), "{}", message(None));
        let found = Epoch::new(3).ok();
        assert!(message(found).contains("and epoch 3 now"), "{}", message(found));
        assert!(message(Some(held)).contains("and an older record of it now"), "{}", message(Some(held)));
    }
}
