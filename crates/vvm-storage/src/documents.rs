//! [`SysVvmDocuments`]: the documents of one database, fenced by the leader record of their partition.

use crate::Partition;
use async_trait::async_trait;
use ielections::{
    BatchOutcome, Document, DocumentId, DocumentLimits, DocumentWrite, Fence, FenceState, Page, ReadError,
    Scan, WriteError,
};

/// The documents in the sysvvm keyspace of one database. A driver returns them by
/// [`SysVvmStorage::documents`](crate::SysVvmStorage::documents).
///
/// The contract is that of [`DocumentStorage`](ielections::DocumentStorage), with partitions for keys. Its
/// suite runs through [`ElectionsTtlStorage`](crate::ElectionsTtlStorage), which checks the limits before it
/// calls a driver.
#[async_trait]
pub trait SysVvmDocuments: Send + Sync {
    /// Returns the limits of this driver.
    fn document_limits(&self) -> DocumentLimits;

    /// Writes a batch, if the fence and all conditions hold. Its writes are about different documents.
    async fn write_documents(
        &self,
        at: &Partition,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError>;

    /// Reads the state that a fence is compared with; linearizable.
    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError>;

    /// Reads a document; linearizable.
    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError>;

    /// Reads a page of documents.
    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError>;
}
