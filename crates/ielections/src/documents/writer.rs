//! [`DocumentWriter`]: shared by all handles of one leadership, so that the partition has one proposer. And
//! [`PriorityLock`], by which renewals go before its batches. No task drives it. A caller that writes joins the
//! [queue]. The caller that holds the drive lock drives until its own batch is answered, and sends those of others
//! along with it. It may be dropped: its unanswered batch stays in the queue, and the next caller settles it first.

mod queue;

use super::{DocumentReadError, DocumentWriteError, Over, Partition};
use crate::{
    DocumentId, DocumentLimits, DocumentVersion, DocumentWrite, FenceState, ReadError, WriteError,
    bounded::{Limit, NoAnswer, bounded},
    protocol::LeaseEvent,
    state::{LeadershipState, Loss},
};
use futures_util::{
    FutureExt,
    stream::{self, StreamExt, TryStreamExt},
};
use queue::{Pace, QueueStep, WriteQueue, WriteResult};
use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Mutex as AsyncMutex, Notify, oneshot};

pub(super) struct DocumentWriter {
    pub(super) limits: DocumentLimits,
    queue: Mutex<WriteQueue>,
    /// Held by the caller that drives. Fair: the caller that waited longest is next.
    drive_lock: AsyncMutex<()>,
    pub(super) partition_lock: PriorityLock,
}

#[derive(Clone, Copy)]
pub(super) struct LedSlot<'access> {
    pub(super) state: &'access LeadershipState,
    pub(super) partition: &'access dyn Partition,
}

/// How many of the documents on which a refused batch depends are read concurrently.
const CONCURRENT_READS: usize = 8;

impl DocumentWriter {
    pub(super) fn new(state: &LeadershipState, limits: DocumentLimits) -> Self {
        let queue = WriteQueue::new(state.epoch, state.incarnation, limits, state.timing.document_timeout());
        Self {
            limits,
            queue: Mutex::new(queue),
            drive_lock: AsyncMutex::default(),
            partition_lock: PriorityLock::default(),
        }
    }

    /// A poisoned lock is taken: each change of the queue is complete when its lock is released.
    fn queue(&self) -> MutexGuard<'_, WriteQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn write(&self, slot: LedSlot<'_>, batch: Vec<DocumentWrite>) -> WriteResult {
        self.limits.check(&batch)?;
        if let Some(loss) = slot.state.why_over() {
            return Err(DocumentWriteError::Lost(loss));
        }
        let mut own = self.queue().push(batch)?;
        tokio::select! {
            biased;
            answer = &mut own => answer.unwrap_or_else(|_| Err(unanswered())),
            _driving = self.drive_lock.lock() => self.drive(slot, &mut own).await,
            loss = slot.state.until_over() => Err(DocumentWriteError::Lost(loss)),
        }
    }

    /// Takes step after step until `own` is answered. Every step is bounded, and so is their number (I10).
    async fn drive(&self, slot: LedSlot<'_>, own: &mut oneshot::Receiver<WriteResult>) -> WriteResult {
        let state = slot.state;
        let mut pace = Pace::AtOnce;
        loop {
            match own.try_recv() {
                Ok(answer) => return answer,
                Err(oneshot::error::TryRecvError::Closed) => return Err(unanswered()),
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            if pace == Pace::AfterPause {
                state.clock.sleep(state.timing.retry_pause()).await;
            }
            let batch_guard = self.partition_lock.lock_for_batch().await;
            if let Some(loss) = state.why_over() {
                self.queue().end(Over::Lost(loss));
                continue;
            }
            let step = self.queue().next();
            pace = match step {
                QueueStep::Write(fence, writes) => {
                    let write = slot.partition.write(&fence, &writes);
                    let outcome = self.bounded(state, write, unknown).await;
                    self.queue().written(state.clock.now(), outcome)
                }
                QueueStep::ReadFence => {
                    let outcome = self.fence_state(slot).await;
                    self.queue().fence_read(state.clock.now(), outcome)
                }
                QueueStep::ReadConditioned(ids) => {
                    drop(batch_guard);
                    let outcome = self.conditioned(slot, ids).await;
                    self.queue().conditioned_read(state.clock.now(), outcome)
                }
                QueueStep::Nothing => return Err(unanswered()),
            };
            self.report_replaced(slot);
        }
    }

    fn report_replaced(&self, slot: LedSlot<'_>) {
        if let Some(Over::Lost(Loss::StorageReplaced { cause })) = self.queue().over() {
            let shown = LeaseEvent::Replaced(Arc::clone(cause));
            slot.partition.report(slot.state.epoch, slot.state.incarnation, shown);
        }
    }

    /// Reads what the fence is compared with. Reports it to the engine if the slot is not ours any more.
    async fn fence_state(&self, slot: LedSlot<'_>) -> Result<FenceState, ReadError> {
        let fence = self.bounded(slot.state, slot.partition.fence_state(), unavailable).await?;
        let LeadershipState { epoch, incarnation, .. } = *slot.state;
        if !fence.slot.entry().is_some_and(|entry| entry.is_of(incarnation, epoch)) {
            slot.partition.report(epoch, incarnation, LeaseEvent::Shown(fence.slot.clone()));
        }
        Ok(fence)
    }

    async fn conditioned(
        &self,
        slot: LedSlot<'_>,
        ids: Vec<DocumentId>,
    ) -> Result<HashMap<DocumentId, DocumentVersion>, ReadError> {
        // Boxed and collected, because the compiler can't prove `Send` of the write's future otherwise.
        let read = |id| self.bounded(slot.state, slot.partition.document(id), unavailable).boxed();
        let reads: Vec<_> = ids.iter().map(read).collect();
        let found = stream::iter(reads).buffer_unordered(CONCURRENT_READS);
        let found: Vec<_> = found.try_collect().await?;
        Ok(found.into_iter().flatten().map(|document| (document.id, document.version)).collect())
    }

    /// Reads from the partition, once its count was read under this leadership: only then is every earlier
    /// batch visible. Fails if the leadership is over when the answer arrives.
    pub(super) async fn read<T: Send>(
        &self,
        slot: LedSlot<'_>,
        read: impl Future<Output = Result<T, ReadError>> + Send,
    ) -> Result<T, DocumentReadError> {
        let state = slot.state;
        if !self.is_open(state)? {
            self.open(slot).await?;
        }
        let read = self.bounded(state, read, unavailable).await;
        if let Err(ReadError::Replaced(cause)) = &read {
            self.queue().replaced(cause.to_string());
            self.report_replaced(slot);
        }
        self.is_open(state)?;
        read.map_err(DocumentReadError::Storage)
    }

    fn is_open(&self, state: &LeadershipState) -> Result<bool, DocumentReadError> {
        if let Some(loss) = state.why_over() {
            return Err(DocumentReadError::Lost(loss));
        }
        let queue = self.queue();
        queue.over().map_or_else(|| Ok(queue.knows_count()), |over| Err(over.clone().into()))
    }

    async fn open(&self, slot: LedSlot<'_>) -> Result<(), DocumentReadError> {
        let state = slot.state;
        let _driving = tokio::select! {
            biased;
            driving = self.drive_lock.lock() => driving,
            loss = state.until_over() => return Err(DocumentReadError::Lost(loss)),
        };
        let _batch_guard = self.partition_lock.lock_for_batch().await;
        if self.is_open(state)? {
            return Ok(());
        }
        let outcome = match self.fence_state(slot).await {
            Err(error @ (ReadError::Unavailable(_) | ReadError::Fatal(_))) => {
                return Err(DocumentReadError::Storage(error));
            }
            outcome => outcome,
        };
        self.queue().fence_read(state.clock.now(), outcome);
        self.report_replaced(slot);
        self.is_open(state).map(drop)
    }

    /// Waits until the batch in flight is answered, but at most [`Timing::renewal_wait`](crate::Timing::renewal_wait):
    /// the renewal matters more.
    pub(super) async fn batch_answered(&self, state: &LeadershipState) {
        if self.partition_lock.is_batch_in_flight() {
            tokio::select! {
                biased;
                () = self.partition_lock.batch_answered() => {}
                () = state.clock.sleep(state.renewal_wait()) => {}
            }
        }
    }

    async fn bounded<T: Send>(
        &self,
        state: &LeadershipState,
        call: impl Future<Output = T> + Send,
        unanswered: fn(NoAnswer) -> T,
    ) -> T {
        let left = state.clock.now().until(state.kill_at());
        let timeout = state.timing.attempt_timeout().min(left);
        bounded(pin!(call), Limit { clock: Arc::clone(&state.clock), timeout, withdrawn: None }, unanswered)
            .await
    }
}

fn unknown<T>(why: NoAnswer) -> Result<T, WriteError> {
    Err(WriteError::Unknown(why.into()))
}

fn unavailable<T>(why: NoAnswer) -> Result<T, ReadError> {
    Err(ReadError::Unavailable(why.into()))
}

/// Never seen by a caller: the queue answers each write before it removes it.
fn unanswered() -> DocumentWriteError {
    DocumentWriteError::Unknown { cause: "the writer has lost the write".into() }
}

/// Gives renewals priority: no step of the writer begins while a renewal waits or is in flight.
#[derive(Default)]
pub(super) struct PriorityLock {
    state: Mutex<LockState>,
    ended: Notify,
}

#[derive(Default)]
struct LockState {
    renewal: bool,
    batch: bool,
}

struct BatchGuard<'lock>(&'lock PriorityLock);

impl PriorityLock {
    fn state(&self) -> MutexGuard<'_, LockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn lock_for_batch(&self) -> BatchGuard<'_> {
        self.wait(|state| {
            state.batch = !state.renewal;
            state.batch
        })
        .await;
        BatchGuard(self)
    }

    /// From now on no batch begins before [`end_renewal`](Self::end_renewal).
    pub(super) fn begin_renewal(&self) {
        self.state().renewal = true;
    }

    pub(super) fn end_renewal(&self) {
        self.state().renewal = false;
        self.ended.notify_waiters();
    }

    fn is_batch_in_flight(&self) -> bool {
        self.state().batch
    }

    async fn batch_answered(&self) {
        self.wait(|state| !state.batch).await;
    }

    async fn wait(&self, mut condition: impl FnMut(&mut LockState) -> bool) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Registered before the condition is evaluated, or an end in between would be missed.
            ended.as_mut().enable();
            if condition(&mut self.state()) {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for BatchGuard<'_> {
    fn drop(&mut self) {
        self.0.state().batch = false;
        self.0.ended.notify_waiters();
    }
}
