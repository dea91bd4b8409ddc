//! The verbs of documents: calls to the same thread as those of slots, with the same sync.

use super::SledStorage;
use crate::{Partition, SysVvmDocuments};
use async_trait::async_trait;
use ielections::{
    BatchOutcome, Document, DocumentId, DocumentLimits, DocumentWrite, Fence, FenceState, Page, ReadError,
    Scan, WriteError,
};

#[async_trait]
impl SysVvmDocuments for SledStorage {
    fn document_limits(&self) -> DocumentLimits {
        DocumentLimits {
            // 17 of the largest fit into a page that sled does not move into a file of its own, which it
            // does not sync.
            max_id_bytes: 1 << 8,
            max_body_bytes: 4 << 10,
            // Renewals wait while one call keeps the thread: milliseconds, or tens of them if the documents
            // do not fit into sled's cache.
            max_batch: 256,
            max_batch_bytes: 1 << 20,
            max_page: 256,
        }
    }

    async fn write_documents(
        &self,
        at: &Partition,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError> {
        let (at, fence, batch) = (at.clone(), *fence, batch.to_vec());
        self.queue()?.write(move |rows| rows.write_documents(&at, &fence, &batch)).await
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let at = at.clone();
        self.queue()?.read(move |rows| rows.fence_state(&at)).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        let (at, id) = (at.clone(), id.clone());
        self.queue()?.read(move |rows| rows.document(&at, &id)).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        let (at, scan) = (at.clone(), scan.clone());
        self.queue()?.read(move |rows| rows.scan_documents(&at, &scan)).await
    }
}
