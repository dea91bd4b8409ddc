//! [`DocumentWriter`]: shared by all handles of one leadership, so that the partition has one proposer.
//!
//! No task drives it. A caller that writes joins the [line](line). The caller that holds the drive lock
//! drives until its own batch is answered, and carries along what other callers have asked for. It may be
//! dropped at any moment: its unanswered batch stays in the line, and the next caller settles it first.

mod gate;
mod line;

use super::{
    DocumentLimits, DocumentWrite,
    error::{DocumentReadError, DocumentWriteError, Over},
};
use crate::{
    DocumentId, DocumentVersion, FenceState, ReadError, Standing, WriteError,
    engine::call::{Limit, NoAnswer, bounded},
};
use futures_util::{
    FutureExt,
    stream::{self, StreamExt, TryStreamExt},
};
use gate::Gate;
use line::{Answer, Line, Pace, Step};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Mutex as AsyncMutex, oneshot};

pub(crate) struct DocumentWriter {
    pub(super) limits: DocumentLimits,
    line: Mutex<Line>,
    /// Held by the caller that drives. Fair: the caller that waited longest is next.
    drive_lock: AsyncMutex<()>,
    gate: Gate,
}

/// How many of the documents on which a refused batch depends are read at once.
const READS_AT_ONCE: usize = 8;

impl DocumentWriter {
    pub(crate) fn of(standing: &Standing, limits: DocumentLimits) -> Self {
        let patience = standing.timing().document_patience();
        let line = Line::new(standing.epoch(), standing.incarnation(), limits, patience);
        Self { limits, line: Mutex::new(line), drive_lock: AsyncMutex::default(), gate: Gate::default() }
    }

    /// Each change of a line is whole when its lock is given back, whatever panics beside it.
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn write(&self, standing: &Standing, batch: Vec<DocumentWrite>) -> Answer {
        self.limits.check(&batch)?;
        if let Some(loss) = standing.over() {
            return Err(DocumentWriteError::Lost(loss));
        }
        let mut own = self.line().join(batch)?;
        tokio::select! {
            biased;
            answer = &mut own => answer.unwrap_or_else(|_| Err(unanswered())),
            _driving = self.drive_lock.lock() => self.drive(standing, &mut own).await,
            loss = standing.until_over() => Err(DocumentWriteError::Lost(loss)),
        }
    }

    /// Takes step after step until `own` is answered. Every step is bounded, and so is their number (I10).
    async fn drive(&self, standing: &Standing, own: &mut oneshot::Receiver<Answer>) -> Answer {
        let mut pace = Pace::AtOnce;
        loop {
            match own.try_recv() {
                Ok(answer) => return answer,
                Err(oneshot::error::TryRecvError::Closed) => return Err(unanswered()),
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            if pace == Pace::AfterPause {
                standing.clock().sleep(standing.timing().retry_pause()).await;
            }
            let turn = self.gate.batch().await;
            if let Some(loss) = standing.over() {
                self.line().end(Over::Lost(loss));
                continue;
            }
            let step = self.line().next();
            pace = match step {
                Step::Write(fence, writes) => {
                    let write = standing.partition().write(&fence, &writes);
                    let outcome = self.bounded(standing, write, unknown).await;
                    self.line().written(standing.clock().now(), outcome)
                }
                Step::ReadFence => {
                    let outcome = self.fence_state(standing).await;
                    self.line().fence_read(standing.clock().now(), outcome)
                }
                Step::ReadConditioned(ids) => {
                    drop(turn);
                    let outcome = self.conditioned(standing, ids).await;
                    self.line().conditioned_read(standing.clock().now(), outcome)
                }
                Step::Nothing => return Err(unanswered()),
            };
        }
    }

    /// Reads what the fence is compared with, and lets the engine know if that is somebody else's record, or
    /// none.
    async fn fence_state(&self, standing: &Standing) -> Result<FenceState, ReadError> {
        let state = self.bounded(standing, standing.partition().fence_state(), unavailable).await?;
        let (epoch, incarnation) = (standing.epoch(), standing.incarnation());
        if !state.slot.entry().is_some_and(|entry| entry.is_of(incarnation, epoch)) {
            standing.partition().shown(epoch, incarnation, state.slot.clone());
        }
        Ok(state)
    }

    async fn conditioned(
        &self,
        standing: &Standing,
        ids: Vec<DocumentId>,
    ) -> Result<HashMap<DocumentId, DocumentVersion>, ReadError> {
        // Boxed, and collected: otherwise the compiler can't tell that a write may move to another thread.
        let read = |id| self.bounded(standing, standing.partition().document(id), unavailable).boxed();
        let reads: Vec<_> = ids.iter().map(read).collect();
        let found = stream::iter(reads).buffer_unordered(READS_AT_ONCE);
        let found: Vec<_> = found.try_collect().await?;
        Ok(found.into_iter().flatten().map(|document| (document.id, document.version)).collect())
    }

    /// Asks for something of the partition, once its count was read under this leadership: only then is every
    /// earlier batch to be seen. What was read is given out only while the leadership still stands.
    pub(super) async fn read<T: Send>(
        &self,
        standing: &Standing,
        read: impl Future<Output = Result<T, ReadError>> + Send,
    ) -> Result<T, DocumentReadError> {
        if !self.is_open(standing)? {
            self.open(standing).await?;
        }
        let read = self.bounded(standing, read, unavailable).await.map_err(DocumentReadError::Storage)?;
        self.is_open(standing)?;
        Ok(read)
    }

    /// Whether the count is known.
    fn is_open(&self, standing: &Standing) -> Result<bool, DocumentReadError> {
        if let Some(loss) = standing.over() {
            return Err(DocumentReadError::Lost(loss));
        }
        let line = self.line();
        line.over().map_or_else(|| Ok(line.knows_count()), |over| Err(over.clone().into()))
    }

    async fn open(&self, standing: &Standing) -> Result<(), DocumentReadError> {
        let _driving = tokio::select! {
            biased;
            driving = self.drive_lock.lock() => driving,
            loss = standing.until_over() => return Err(DocumentReadError::Lost(loss)),
        };
        let _turn = self.gate.batch().await;
        if self.is_open(standing)? {
            return Ok(());
        }
        let outcome = match self.fence_state(standing).await {
            Err(error @ (ReadError::Unavailable(_) | ReadError::Fatal(_))) => {
                return Err(DocumentReadError::Storage(error));
            }
            outcome => outcome,
        };
        self.line().fence_read(standing.clock().now(), outcome);
        self.is_open(standing).map(drop)
    }

    async fn bounded<T: Send>(
        &self,
        standing: &Standing,
        call: impl Future<Output = T> + Send,
        unanswered: fn(NoAnswer) -> T,
    ) -> T {
        let left = standing.clock().now().until(standing.kill_at());
        let timeout = standing.timing().attempt_timeout().min(left);
        let limit = Limit { clock: Arc::clone(standing.clock()), timeout, withdrawn: None };
        bounded(call, limit, unanswered).await
    }
}

fn unknown<T>(why: NoAnswer) -> Result<T, WriteError> {
    Err(WriteError::Unknown(why.into()))
}

fn unavailable<T>(why: NoAnswer) -> Result<T, ReadError> {
    Err(ReadError::Unavailable(why.into()))
}

/// Never seen by a caller: the line answers each write before it forgets it.
fn unanswered() -> DocumentWriteError {
    DocumentWriteError::Unknown { cause: "the writer has lost the write".into() }
}

/// A renewal that goes before the writer's batches, from the moment when it is to be sent until it is over.
pub(crate) struct RenewalTurn(Standing);

impl RenewalTurn {
    /// `None` where nobody has asked for documents: nothing to go before.
    pub(crate) fn of(standing: &Standing) -> Option<Self> {
        standing.writer()?.gate.begin_renewal();
        Some(Self(standing.clone()))
    }

    /// Waits for the batch at the storage, but not for long: the renewal matters more.
    pub(crate) async fn come(&self) {
        let Some(writer) = self.0.writer() else { return };
        if writer.gate.is_batch_under_way() {
            tokio::select! {
                biased;
                () = writer.gate.batch_passed() => {}
                () = self.0.clock().sleep(self.0.timing().renewal_patience()) => {}
            }
        }
    }
}

impl Drop for RenewalTurn {
    fn drop(&mut self) {
        if let Some(writer) = self.0.writer() {
            writer.gate.end_renewal();
        }
    }
}
