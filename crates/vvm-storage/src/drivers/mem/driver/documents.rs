//! The verbs of documents, under the same lock as those of slots.

use super::MemStorage;
use crate::{Partition, SysVvmDocuments};
use async_trait::async_trait;
use ielections::{
    BatchOutcome, Document, DocumentId, DocumentLimits, DocumentWrite, Fence, FenceState, Page, ReadError,
    Scan, WriteError,
};

#[async_trait]
impl SysVvmDocuments for MemStorage {
    fn document_limits(&self) -> DocumentLimits {
        DocumentLimits {
            // These keep a mistake from filling the memory.
            max_id_bytes: 1 << 10,
            max_body_bytes: 1 << 20,
            max_batch_bytes: 16 << 20,
            // With these, one call keeps the lock for about 1 ms.
            max_batch: 1024,
            max_page: 1024,
        }
    }

    async fn write_documents(
        &self,
        at: &Partition,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError> {
        Ok(self.open()?.rows().write_documents(at, fence, batch))
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let database = self.open()?;
        let rows = database.rows();
        Ok(FenceState { slot: rows.slot(at, || database.clock.now()), last: rows.last_batch(at) })
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        Ok(self.open()?.rows().document(at, id))
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        Ok(self.open()?.rows().scan_documents(at, scan))
    }
}
