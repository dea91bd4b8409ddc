//! The verbs of documents: a batch is one transaction, sent once.

mod requests;

use super::{
    super::{errors::DriverError, rows::MAX_ID_BYTES},
    DynamoDbStorage,
};
use crate::{key::Partition, step::Done};
use ielections::{
    Document, DocumentId, DocumentLimits, DocumentWrite, Fence, FenceState, Page, ReadError, Scan, WriteError,
};

impl DynamoDbStorage {
    pub(super) fn document_limits(&self) -> DocumentLimits {
        DocumentLimits {
            max_id_bytes: MAX_ID_BYTES,
            // DynamoDB takes items of 400 KB, with their keys and the names of their attributes.
            max_body_bytes: 384 << 10,
            // A transaction has 100 actions at most. Two are for the leader record and the count of batches.
            max_batch: 98,
            // DynamoDB allows a transaction of 4 MB. Each item has a partition key of up to 2 KB, and the
            // count repeats all ids. A batch uses only a quarter, because a renewal waits for it.
            max_batch_bytes: 1 << 20,
            // DynamoDB ends a page at 1 MB anyway.
            max_page: 1_000,
        }
    }

    pub(super) async fn write_documents(
        &self,
        at: &Partition,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<Done, WriteError> {
        let written = self.requests()?.write_documents(at.as_bytes(), fence, batch).await;
        written.map_err(DriverError::into_write_error)
    }

    pub(super) async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        self.requests()?.fence_state(at.as_bytes()).await.map_err(DriverError::into_read_error)
    }

    pub(super) async fn document(
        &self,
        at: &Partition,
        id: &DocumentId,
    ) -> Result<Option<Document>, ReadError> {
        self.requests()?.document(at.as_bytes(), id).await.map_err(DriverError::into_read_error)
    }

    pub(super) async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        self.requests()?.scan_documents(at.as_bytes(), scan).await.map_err(DriverError::into_read_error)
    }
}
