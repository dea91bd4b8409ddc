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
            // Memory has no limit worth the name; these keep a mistake from filling it.
            max_id_bytes: 1 << 10,
            max_body_bytes: 1 << 20,
            max_batch_bytes: 16 << 20,
            // These bound how long one call keeps the lock: about 1 ms.
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
        Ok(self.open_for_write()?.rows().write_documents(at, fence, batch))
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let database = self.open_for_read()?;
        let rows = database.rows();
        Ok(FenceState { slot: rows.slot(at, || database.clock.now()), last: rows.last_batch(at) })
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        Ok(self.open_for_read()?.rows().document(at, id))
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        Ok(self.open_for_read()?.rows().scan_documents(at, scan))
    }
}
