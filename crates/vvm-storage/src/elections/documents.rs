//! Documents of elections: maps keys to partitions, and refuses what exceeds the driver's limits.

use super::ElectionsTtlStorage;
use crate::{
    key::ElectionKey,
    step::{Done, Step},
    sysvvm::NoDocuments,
};
use async_trait::async_trait;
use ielections::{
    BatchOutcome, BeyondDocumentLimits, Document, DocumentId, DocumentLimits, DocumentStorage,
    DocumentVersion, DocumentWrite, Fence, FenceState, Page, ReadError, Scan, WriteError,
};

/// The count of batches has no next number: two batches would have the same one (I2).
#[derive(Debug, thiserror::Error)]
#[error(
    "the count of batches of {key} is damaged in this storage: it is {found}. Find out what wrote it; \
     restore a backup with all candidates stopped"
)]
struct DamagedCount {
    key: ElectionKey,
    found: DocumentVersion,
}

/// Refuses a count that no number follows.
fn check_count(key: &ElectionKey, found: DocumentVersion) -> Result<(), DamagedCount> {
    if found.get() < DocumentVersion::MAX { Ok(()) } else { Err(DamagedCount { key: key.clone(), found }) }
}

impl ElectionsTtlStorage {
    fn limits_for_read(&self) -> Result<DocumentLimits, ReadError> {
        self.sysvvm.document_limits().ok_or_else(|| ReadError::Fatal(NoDocuments.into()))
    }
}

#[async_trait]
impl DocumentStorage<ElectionKey> for ElectionsTtlStorage {
    fn document_limits(&self) -> DocumentLimits {
        let nothing = DocumentLimits {
            max_id_bytes: 0,
            max_body_bytes: 0,
            max_batch: 0,
            max_batch_bytes: 0,
            max_page: 0,
        };
        self.sysvvm.document_limits().unwrap_or(nothing)
    }

    async fn write_documents(
        &self,
        key: &ElectionKey,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError> {
        let none = || WriteError::Fatal(NoDocuments.into());
        let limits = self.sysvvm.document_limits().ok_or_else(none)?;
        let partition = self.for_write(key, None)?;
        check_count(key, fence.after).map_err(|damaged| WriteError::Fatal(damaged.into()))?;
        let beyond = |beyond: BeyondDocumentLimits| WriteError::Fatal(beyond.into());
        limits.check(batch).map_err(beyond)?;
        Ok(match self.sysvvm.commit(partition, Step::batch(fence, batch)).await? {
            Done::Applied => BatchOutcome::Written,
            Done::Refused(_) => BatchOutcome::Refused,
        })
    }

    async fn fence_state(&self, key: &ElectionKey) -> Result<FenceState, ReadError> {
        let state = self.sysvvm.fence_state(&self.for_read(key)?).await?;
        check_count(key, state.last).map_err(|damaged| ReadError::Fatal(damaged.into()))?;
        Ok(state)
    }

    async fn document(&self, key: &ElectionKey, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.limits_for_read()?.check_id(id).map_err(|beyond| ReadError::Fatal(beyond.into()))?;
        self.sysvvm.document(&self.for_read(key)?, id).await
    }

    async fn scan_documents(&self, key: &ElectionKey, scan: &Scan) -> Result<Page, ReadError> {
        let within = Scan { limit: scan.limit.clamp(1, self.limits_for_read()?.max_page), ..scan.clone() };
        self.sysvvm.scan_documents(&self.for_read(key)?, &within).await
    }
}
