//! The verbs of documents: calls to the same thread as those of slots, with the same sync behind them.

use super::{super::errors::DriverError, SledStorage};
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
            // 17 of the largest fit into a page of sled's that is not moved into a file of its own, which
            // nobody syncs.
            max_id_bytes: 1 << 8,
            max_body_bytes: 4 << 10,
            // These bound how long one call keeps the thread, for which renewals wait: milliseconds, and tens
            // of them where there are more documents than sled's cache has room for.
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
        self.for_write()?.write(move |rows| rows.write_documents(&at, &fence, &batch)).await
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let at = at.clone();
        self.for_read()?.read(move |rows| rows.fence_state(&at).map_err(DriverError::into_read_error)).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        let (at, id) = (at.clone(), id.clone());
        self.for_read()?.read(move |rows| rows.document(&at, &id).map_err(DriverError::into_read_error)).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        let (at, scan) = (at.clone(), scan.clone());
        self.for_read()?
            .read(move |rows| rows.scan_documents(&at, &scan).map_err(DriverError::into_read_error))
            .await
    }
}
