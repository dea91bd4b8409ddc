//! [`SysVvmDocuments`]: the documents of one database, fenced by the leader record of their partition.

use crate::Partition;
use async_trait::async_trait;
use ielections::{
    BatchOutcome, Document, DocumentId, DocumentLimits, DocumentWrite, Fence, FenceState, Page, ReadError,
    Scan, WriteError,
};

/// The documents in the sysvvm keyspace of one database: what a [`SysVvmStorage`](crate::SysVvmStorage)
/// offers by its `documents`.
///
/// The contract is that of [`DocumentStorage`](ielections::DocumentStorage), with partitions for keys; its
/// suite runs through [`ElectionsTtlStorage`](crate::ElectionsTtlStorage), which has checked limits before it
/// calls.
#[async_trait]
pub trait SysVvmDocuments: Send + Sync {
    /// What this driver can carry.
    fn document_limits(&self) -> DocumentLimits;

    /// Writes a batch, if the fence stands and all conditions hold. No two writes of it are about one
    /// document.
    async fn write_documents(
        &self,
        at: &Partition,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError>;

    /// What a fence would be compared with now; linearizable.
    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError>;

    /// One document; linearizable.
    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError>;

    /// One page of documents.
    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError>;
}
