//! [`Standing`]: what work under a leadership may know of it. Read-only, cheap to clone, no way to hand back.

use crate::{
    Entry, Epoch, Incarnation, Loss, Timing,
    documents::{DocumentWriter, Partition},
};
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;
use vvm_clock::{Clock, Instant, Span};

/// How one leadership stands, for the work that runs under it.
#[derive(Clone)]
pub struct Standing(Arc<Cell<dyn Partition>>);

/// There is not so much time left under this leadership.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InsufficientTime {
    /// The leadership is over, or must be handed back. Stop.
    #[error(transparent)]
    Lost(Loss),
    /// The leadership stands, and a renewal may still come in time. Ask again before the step.
    #[error("{} are left of the leadership, and {} are needed", Span(*remaining), Span(*at_least))]
    TooShort {
        /// How long until the kill deadline.
        remaining: Duration,
        /// How long the step asked for.
        at_least: Duration,
    },
}

struct Cell<P: ?Sized> {
    epoch: Epoch,
    incarnation: Incarnation,
    timing: Timing,
    clock: Arc<dyn Clock>,
    /// When the last confirmed write was sent, in the clock's nanoseconds: everything else follows from it
    /// (I3).
    confirmed_sent_at: AtomicU64,
    loss: OnceLock<Loss>,
    /// Rings when the standing is lost.
    lost: Notify,
    /// Made when somebody first asks for documents (I11).
    writer: OnceLock<Arc<DocumentWriter>>,
    /// Where the documents are. In the same allocation, and last, since only there a type may be left open.
    partition: P,
}

impl Standing {
    pub(crate) fn new(
        entry: &Entry,
        sent_at: Instant,
        clock: Arc<dyn Clock>,
        partition: impl Partition + 'static,
    ) -> Self {
        Self(Arc::new(Cell {
            epoch: entry.epoch,
            incarnation: entry.incarnation(),
            timing: Timing::of(entry.ttl),
            clock,
            confirmed_sent_at: AtomicU64::new(sent_at.as_nanos()),
            loss: OnceLock::new(),
            lost: Notify::new(),
            writer: OnceLock::new(),
            partition,
        }))
    }

    /// The fencing token: hand it to every system that can compare it (I2).
    pub fn epoch(&self) -> Epoch {
        self.0.epoch
    }

    /// Which acquisition this leadership came from.
    pub fn incarnation(&self) -> Incarnation {
        self.0.incarnation
    }

    /// When the process is dead unless a renewal is confirmed before (I3).
    pub fn kill_at(&self) -> Instant {
        self.0.timing.kill_at(self.confirmed_sent_at())
    }

    /// How long from now until [`Standing::kill_at`]; zero once the leadership is lost.
    pub fn remaining(&self) -> Duration {
        match self.loss() {
            Some(_) => Duration::ZERO,
            None => self.0.clock.now().until(self.kill_at()),
        }
    }

    /// Whether at least so much time is left: to be asked right before a critical step. Neither waits nor
    /// locks.
    ///
    /// # Errors
    /// [`InsufficientTime`]: don't begin the step.
    pub fn ensure(&self, at_least: Duration) -> Result<(), InsufficientTime> {
        if let Some(loss) = self.loss() {
            return Err(InsufficientTime::Lost(loss.clone()));
        }
        let remaining = self.remaining();
        // No time left is too little, even for a step that asks for none: past the deadline somebody else may
        // lead.
        if remaining.is_zero() || remaining < at_least {
            return Err(InsufficientTime::TooShort { remaining, at_least });
        }
        Ok(())
    }

    /// Why the leadership is over, if it is.
    pub fn loss(&self) -> Option<&Loss> {
        self.0.loss.get()
    }

    /// Resolves when the leadership is over or must be handed back.
    ///
    /// # Cancel safety
    /// May be dropped and asked again at will; any number may wait.
    pub async fn lost(&self) -> Loss {
        loop {
            let rung = self.0.lost.notified();
            tokio::pin!(rung);
            // Listening begins before looking, or a loss in between would go unheard.
            rung.as_mut().enable();
            if let Some(loss) = self.loss() {
                return loss.clone();
            }
            rung.await;
        }
    }

    /// Resolves when no renewal has been confirmed for half a TTL, with the time that is left: a warning. At
    /// once when the leadership is already at risk or over.
    ///
    /// # Cancel safety
    /// May be dropped and asked again at will.
    pub async fn at_risk(&self) -> Duration {
        loop {
            let rung = self.0.lost.notified();
            tokio::pin!(rung);
            rung.as_mut().enable();
            let at_risk_at = self.0.timing.at_risk_at(self.confirmed_sent_at());
            if self.loss().is_some() || self.0.clock.now() >= at_risk_at {
                return self.remaining();
            }
            tokio::select! {
                biased;
                () = rung => {}
                () = self.0.clock.sleep_until(at_risk_at) => {}
            }
        }
    }

    pub(crate) fn timing(&self) -> Timing {
        self.0.timing
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    pub(crate) fn partition(&self) -> &dyn Partition {
        &self.0.partition
    }

    /// What writes of documents go through; `None` where nobody has asked for documents.
    pub(crate) fn writer(&self) -> Option<&Arc<DocumentWriter>> {
        self.0.writer.get()
    }

    /// The writer; `make` makes it unless there is one.
    pub(crate) fn open_writer(&self, make: impl FnOnce() -> DocumentWriter) -> &Arc<DocumentWriter> {
        self.0.writer.get_or_init(|| Arc::new(make()))
    }

    /// Why nothing may be written under this leadership any more. While elections close, its holder still
    /// leads.
    pub(crate) fn over(&self) -> Option<Loss> {
        match self.loss() {
            Some(loss) if *loss != Loss::Closing => Some(loss.clone()),
            // The engine would have said so, had it run.
            _ if self.0.clock.now() >= self.kill_at() => Some(Loss::Suspended),
            _ => None,
        }
    }

    /// Resolves when nothing may be written any more.
    pub(crate) async fn until_over(&self) -> Loss {
        loop {
            let rung = self.0.lost.notified();
            tokio::pin!(rung);
            rung.as_mut().enable();
            if let Some(loss) = self.over() {
                return loss;
            }
            tokio::select! {
                biased;
                () = rung => {}
                () = self.0.clock.sleep_until(self.kill_at()) => {}
            }
        }
    }

    fn confirmed_sent_at(&self) -> Instant {
        Instant::from_nanos(self.0.confirmed_sent_at.load(Ordering::Acquire))
    }

    pub(crate) fn confirm(&self, sent_at: Instant) {
        // Only ever later (I3): an older confirmation that overtook a newer one must not undo it.
        self.0.confirmed_sent_at.fetch_max(sent_at.as_nanos(), Ordering::AcqRel);
    }

    /// The first loss stands (I8).
    pub(crate) fn lose(&self, loss: Loss) {
        if self.0.loss.set(loss).is_ok() {
            self.0.lost.notify_waiters();
        }
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.loss() {
            Some(loss) => write!(out, "Standing({:?}, {loss})", self.0.epoch),
            None => write!(out, "Standing({:?}, {:?} left)", self.0.epoch, self.remaining()),
        }
    }
}
