//! The verbs of documents: jobs for the same thread and in the same transactions as those of slots.

use super::{super::rows::Rows, SqliteStorage};
use crate::{Partition, SysVvmDocuments};
use async_trait::async_trait;
use ielections::{
    BatchOutcome, Document, DocumentId, DocumentLimits, DocumentWrite, Fence, FenceState, Page, ReadError,
    Scan, WriteError,
};

#[async_trait]
impl SysVvmDocuments for SqliteStorage {
    fn document_limits(&self) -> DocumentLimits {
        DocumentLimits {
            max_id_bytes: 1 << 10,
            max_body_bytes: 1 << 20,
            // Renewals wait while one call keeps the thread: with these limits, milliseconds.
            max_batch: 256,
            max_batch_bytes: 2 << 20,
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
        self.queue.write(move |rows: &Rows<'_>| rows.write_documents(&at, &fence, &batch)).await
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let at = at.clone();
        self.queue.read(move |rows: &Rows<'_>| rows.fence_state(&at)).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        let (at, id) = (at.clone(), id.clone());
        self.queue.read(move |rows: &Rows<'_>| rows.document(&at, &id)).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        let (at, scan) = (at.clone(), scan.clone());
        self.queue.read(move |rows: &Rows<'_>| rows.scan_documents(&at, &scan)).await
    }
}
