//! For tests of storages. [`compare_steps`]: random steps on a driver. [`Layer`]: a storage in front of another
//! one. [`FaultyStorage`]: one whose next calls fail or hang.

#[allow(clippy::unwrap_used, reason = "the test that calls it fails by it")]
mod compare_steps;
mod faulty_storage;

pub use compare_steps::compare_steps;
pub use faulty_storage::{Fault, FaultyStorage};

use crate::{
    key::Partition,
    step::{Done, Step},
    sysvvm::{Description, Opened, SysVvmStorage},
};
use async_trait::async_trait;
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, WriteError,
};
use std::{fmt::Debug, sync::Arc, time::Duration};

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
