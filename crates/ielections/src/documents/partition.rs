//! The partition of one leadership, without its key type: what a [`Standing`](crate::Standing) carries of it.

use super::{
    BatchOutcome, Document, DocumentId, DocumentLimits, DocumentStorage, DocumentWrite, Fence, FenceState,
};
use super::{Page, Scan};
use crate::{Epoch, Incarnation, Key, ReadError, Slot, TtlStorage, WriteError, engine::Reports};
use async_trait::async_trait;
use std::sync::{Arc, Weak};

/// One key of one storage.
#[async_trait]
pub(crate) trait Partition: Send + Sync {
    /// `None`: no documents here.
    fn limits(&self) -> Option<DocumentLimits>;
    async fn write(&self, fence: &Fence, batch: &[DocumentWrite]) -> Result<BatchOutcome, WriteError>;
    async fn fence_state(&self) -> Result<FenceState, ReadError>;
    async fn document(&self, id: &DocumentId) -> Result<Option<Document>, ReadError>;
    async fn scan(&self, scan: &Scan) -> Result<Page, ReadError>;
    /// Lets the engine know what was seen in the slot of the leadership: somebody else's record, or none.
    fn shown(&self, epoch: Epoch, incarnation: Incarnation, slot: Slot);
}

/// Of a storage that keeps no documents.
pub(crate) struct NoPartition;

/// Of a storage that keeps some. Weak throughout: a standing that outlives its elections keeps nothing alive
/// (I9).
pub(crate) struct KeyPartition<K: Key> {
    pub(crate) key: K,
    pub(crate) storage: Weak<dyn TtlStorage<K>>,
    pub(crate) reports: Reports<K>,
}

/// The elections have ended and let go of the storage.
#[derive(Debug, thiserror::Error)]
#[error("the elections have ended, or their storage keeps no documents any more")]
struct Ended;

impl<K: Key> KeyPartition<K> {
    fn storage(&self) -> Result<Arc<dyn TtlStorage<K>>, Ended> {
        self.storage.upgrade().ok_or(Ended)
    }
}

fn documents<K: Key>(storage: &Arc<dyn TtlStorage<K>>) -> Result<&dyn DocumentStorage<K>, Ended> {
    storage.documents().ok_or(Ended)
}

fn unread(ended: Ended) -> ReadError {
    ReadError::Fatal(ended.into())
}

fn unwritten(ended: Ended) -> WriteError {
    WriteError::Fatal(ended.into())
}

#[async_trait]
impl<K: Key> Partition for KeyPartition<K> {
    fn limits(&self) -> Option<DocumentLimits> {
        Some(documents(&self.storage().ok()?).ok()?.document_limits())
    }

    async fn write(&self, fence: &Fence, batch: &[DocumentWrite]) -> Result<BatchOutcome, WriteError> {
        let storage = self.storage().map_err(unwritten)?;
        documents(&storage).map_err(unwritten)?.write_documents(&self.key, fence, batch).await
    }

    async fn fence_state(&self) -> Result<FenceState, ReadError> {
        let storage = self.storage().map_err(unread)?;
        documents(&storage).map_err(unread)?.fence_state(&self.key).await
    }

    async fn document(&self, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        let storage = self.storage().map_err(unread)?;
        documents(&storage).map_err(unread)?.document(&self.key, id).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Page, ReadError> {
        let storage = self.storage().map_err(unread)?;
        documents(&storage).map_err(unread)?.scan_documents(&self.key, scan).await
    }

    fn shown(&self, epoch: Epoch, incarnation: Incarnation, slot: Slot) {
        self.reports.shown(epoch, incarnation, slot);
    }
}

#[async_trait]
impl Partition for NoPartition {
    fn limits(&self) -> Option<DocumentLimits> {
        None
    }

    async fn write(&self, _: &Fence, _: &[DocumentWrite]) -> Result<BatchOutcome, WriteError> {
        Err(unwritten(Ended))
    }

    async fn fence_state(&self) -> Result<FenceState, ReadError> {
        Err(unread(Ended))
    }

    async fn document(&self, _: &DocumentId) -> Result<Option<Document>, ReadError> {
        Err(unread(Ended))
    }

    async fn scan(&self, _: &Scan) -> Result<Page, ReadError> {
        Err(unread(Ended))
    }

    fn shown(&self, _: Epoch, _: Incarnation, _: Slot) {}
}
