//! For tests of storages. [`compare_steps`]: random steps on a driver. [`Layer`]: a storage in front of another
//! one. [`FaultyStorage`]: one whose next calls fail or hang.

#[allow(clippy::unwrap_used, reason = "the test that calls it fails by it")]
mod compare_steps;

pub use compare_steps::compare_steps;

use crate::{
    key::Partition,
    step::{Done, Step},
    sysvvm::{Description, Opened, SysVvmStorage},
};
use async_trait::async_trait;
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, WriteError,
};
use std::{
    fmt::Debug,
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// A storage in front of another one: calls that it does not override pass through.
#[async_trait]
pub trait Layer: Debug + Send + Sync + 'static {
    /// The storage that calls are passed on to.
    fn beneath(&self) -> &dyn SysVvmStorage;

    /// Makes a storage of this layer.
    fn into_storage(self: Arc<Self>) -> Arc<dyn SysVvmStorage>
    where
        Self: Sized,
    {
        Arc::new(Layered(self))
    }

    /// See [`SysVvmStorage::limits`].
    fn limits(&self) -> Limits {
        self.beneath().limits()
    }

    /// See [`SysVvmStorage::commit`].
    async fn commit(&self, at: Partition, step: Step) -> Result<Done, WriteError> {
        self.beneath().commit(at, step).await
    }

    /// See [`SysVvmStorage::read`].
    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.beneath().read(at).await
    }

    /// See [`SysVvmStorage::peek_some`].
    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        self.beneath().peek_some(at, seen).await
    }

    /// See [`SysVvmStorage::close`].
    async fn close(&self) {
        self.beneath().close().await;
    }
}

/// A layer as a storage.
#[derive(Debug)]
struct Layered<L>(Arc<L>);

#[async_trait]
impl<L: Layer> SysVvmStorage for Layered<L> {
    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn shared_between_processes(&self) -> bool {
        self.0.beneath().shared_between_processes()
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<Done, WriteError> {
        self.0.commit(at, step).await
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.0.read(at).await
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let mut seen = vec![None; at.len()];
        self.0.peek_some(at, &mut seen).await?;
        // Without an error, none is missing.
        Ok(seen.into_iter().flatten().collect())
    }

    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        self.0.peek_some(at, seen).await
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.0.beneath().setting(at).await
    }

    fn document_limits(&self) -> Option<DocumentLimits> {
        self.0.beneath().document_limits()
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        self.0.beneath().fence_state(at).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.0.beneath().document(at, id).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        self.0.beneath().scan_documents(at, scan).await
    }

    fn opened(&self) -> Option<Opened> {
        self.0.beneath().opened()
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        self.0.beneath().describe().await
    }

    async fn shown_ages(&self, at: &[Partition]) -> Result<Vec<Option<Duration>>, ReadError> {
        self.0.beneath().shown_ages(at).await
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

/// What happens to a renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is applied, and its answer is lost.
    LostAnswer,
    /// It is not applied, and never answered.
    Hang,
    /// It is refused: the disk is full.
    Refused,
}

/// A storage that fails on request.
#[derive(Debug)]
pub struct FaultyStorage {
    storage: Arc<dyn SysVvmStorage>,
    next: Mutex<Option<Fault>>,
    hangs_in_close: AtomicBool,
    hides_requests: AtomicBool,
}

impl FaultyStorage {
    /// Wraps `storage`. Nothing fails yet.
    pub fn over(storage: Arc<dyn SysVvmStorage>) -> Arc<Self> {
        let (hangs_in_close, hides_requests) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { storage, next: Mutex::default(), hangs_in_close, hides_requests })
    }

    /// Makes reads of the two partitions of requests fail, which are the last of a scan.
    pub fn hide_requests(&self) {
        self.hides_requests.store(true, Relaxed);
    }

    /// Lets `close` never end.
    pub fn hang_close(&self) {
        self.hangs_in_close.store(true, Relaxed);
    }

    /// Lets the next renewal fail.
    pub fn fail_next(&self, fault: Fault) {
        *lock(&self.next) = Some(fault);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Layer for FaultyStorage {
    fn beneath(&self) -> &dyn SysVvmStorage {
        &*self.storage
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<Done, WriteError> {
        let Step::Renew { .. } = step else { return self.storage.commit(at, step).await };
        let fault = lock(&self.next).take();
        match fault {
            None => self.storage.commit(at, step).await,
            Some(Fault::LostAnswer) => {
                self.storage.commit(at, step).await?;
                Err(WriteError::Unknown("the answer is lost".into()))
            }
            Some(Fault::Hang) => pending().await,
            Some(Fault::Refused) => Err(WriteError::NotApplied("the disk is full".into())),
        }
    }

    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        if !self.hides_requests.load(Relaxed) {
            return self.storage.peek_some(at, seen).await;
        }
        let slots = at.len().saturating_sub(2);
        self.storage.peek_some(&at[..slots], &mut seen[..slots]).await?;
        Err(ReadError::Unavailable("the partition has no quorum".into()))
    }

    async fn close(&self) {
        if self.hangs_in_close.load(Relaxed) {
            pending::<()>().await;
        }
        self.storage.close().await;
    }
}
