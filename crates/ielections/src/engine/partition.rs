//! The documents of the slot that a lease holds. References to the engine and the storage are weak: a
//! standing that outlives its elections keeps nothing alive (I9).

use super::command::Command;
use crate::{
    BatchOutcome, Document, DocumentId, DocumentLimits, DocumentStorage, DocumentWrite, Epoch, Fence,
    FenceState, Incarnation, Key, Page, ReadError, Scan, Slot, TtlStorage, WriteError, documents::Partition,
};
use async_trait::async_trait;
use std::sync::{Arc, Weak};
use tokio::sync::mpsc::UnboundedSender;

/// For a storage that keeps no documents.
pub(super) struct NoPartition;

/// For a storage that keeps documents.
pub(super) struct KeyPartition<K: Key> {
    pub(super) key: K,
    pub(super) storage: Weak<dyn TtlStorage<K>>,
    /// The lease that reports go to.
    pub(super) lease: usize,
    pub(super) commands: Weak<UnboundedSender<Command<K>>>,
}

/// The elections have ended and released the storage.
#[derive(Debug, thiserror::Error)]
#[error("the elections have ended, or their storage keeps no documents any more")]
struct Ended;

impl From<Ended> for ReadError {
    fn from(ended: Ended) -> Self {
        Self::Fatal(ended.into())
    }
}

impl From<Ended> for WriteError {
    fn from(ended: Ended) -> Self {
        Self::Fatal(ended.into())
    }
}

impl<K: Key> KeyPartition<K> {
    fn storage(&self) -> Result<Arc<dyn TtlStorage<K>>, Ended> {
        self.storage.upgrade().ok_or(Ended)
    }
}

fn documents<K: Key>(storage: &Arc<dyn TtlStorage<K>>) -> Result<&dyn DocumentStorage<K>, Ended> {
    storage.documents().ok_or(Ended)
}

#[async_trait]
impl<K: Key> Partition for KeyPartition<K> {
    fn limits(&self) -> Option<DocumentLimits> {
        Some(documents(&self.storage().ok()?).ok()?.document_limits())
    }

    async fn write(&self, fence: &Fence, batch: &[DocumentWrite]) -> Result<BatchOutcome, WriteError> {
        documents(&self.storage()?)?.write_documents(&self.key, fence, batch).await
    }

    async fn fence_state(&self) -> Result<FenceState, ReadError> {
        documents(&self.storage()?)?.fence_state(&self.key).await
    }

    async fn document(&self, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        documents(&self.storage()?)?.document(&self.key, id).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Page, ReadError> {
        documents(&self.storage()?)?.scan_documents(&self.key, scan).await
    }

    fn report(&self, epoch: Epoch, incarnation: Incarnation, slot: Slot) {
        if let Some(commands) = self.commands.upgrade() {
            // A task that has ended has lost the lease already.
            drop(commands.send(Command::Shown { lease: self.lease, epoch, incarnation, slot }));
        }
    }
}

#[async_trait]
impl Partition for NoPartition {
    fn limits(&self) -> Option<DocumentLimits> {
        None
    }

    async fn write(&self, _: &Fence, _: &[DocumentWrite]) -> Result<BatchOutcome, WriteError> {
        Err(Ended.into())
    }

    async fn fence_state(&self) -> Result<FenceState, ReadError> {
        Err(Ended.into())
    }

    async fn document(&self, _: &DocumentId) -> Result<Option<Document>, ReadError> {
        Err(Ended.into())
    }

    async fn scan(&self, _: &Scan) -> Result<Page, ReadError> {
        Err(Ended.into())
    }

    fn report(&self, _: Epoch, _: Incarnation, _: Slot) {}
}
