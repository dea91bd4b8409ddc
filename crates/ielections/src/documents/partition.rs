//! [`Partition`]: the documents of one slot, without the type of its key.

use crate::{
    BatchOutcome, Document, DocumentId, DocumentLimits, DocumentWrite, Epoch, Fence, FenceState, Incarnation,
    Page, ReadError, Scan, Slot, WriteError,
};
use async_trait::async_trait;

/// The documents of the slot that a leadership holds.
#[async_trait]
pub(crate) trait Partition: Send + Sync {
    /// `None` if the storage keeps no documents.
    fn limits(&self) -> Option<DocumentLimits>;
    async fn write(&self, fence: &Fence, batch: &[DocumentWrite]) -> Result<BatchOutcome, WriteError>;
    async fn fence_state(&self) -> Result<FenceState, ReadError>;
    async fn document(&self, id: &DocumentId) -> Result<Option<Document>, ReadError>;
    async fn scan(&self, scan: &Scan) -> Result<Page, ReadError>;
    /// Reports to the engine that the slot shows another leadership's record, or none.
    fn report(&self, epoch: Epoch, incarnation: Incarnation, slot: Slot);
}
