//! Documents of elections: maps keys to partitions, and refuses what exceeds the driver's limits.

use super::ElectionsTtlStorage;
use crate::{ElectionKey, SysVvmDocuments};
use async_trait::async_trait;
use ielections::{
    BatchOutcome, BeyondDocumentLimits, Document, DocumentId, DocumentLimits, DocumentStorage,
    DocumentVersion, DocumentWrite, Fence, FenceState, Page, ReadError, Scan, WriteError,
};

/// The driver has no documents. Callers find out before they can write one.
#[derive(Debug, thiserror::Error)]
#[error("this storage has no documents")]
struct NoDocuments;

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
    fn driver(&self) -> Result<&dyn SysVvmDocuments, NoDocuments> {
        self.sysvvm.documents().ok_or(NoDocuments)
    }

    fn driver_for_read(&self) -> Result<&dyn SysVvmDocuments, ReadError> {
        self.driver().map_err(|none| ReadError::Fatal(none.into()))
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
        self.driver().map_or(nothing, SysVvmDocuments::document_limits)
    }

    async fn write_documents(
        &self,
        key: &ElectionKey,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError> {
        let driver = self.driver().map_err(|none| WriteError::Fatal(none.into()))?;
        let partition = self.for_write(key, None)?;
        check_count(key, fence.after).map_err(|damaged| WriteError::Fatal(damaged.into()))?;
        let beyond = |beyond: BeyondDocumentLimits| WriteError::Fatal(beyond.into());
        driver.document_limits().check(batch).map_err(beyond)?;
        driver.write_documents(&partition, fence, batch).await
    }

    async fn fence_state(&self, key: &ElectionKey) -> Result<FenceState, ReadError> {
        let state = self.driver_for_read()?.fence_state(&self.for_read(key)?).await?;
        check_count(key, state.last).map_err(|damaged| ReadError::Fatal(damaged.into()))?;
        Ok(state)
    }

    async fn document(&self, key: &ElectionKey, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        let driver = self.driver_for_read()?;
        driver.document_limits().check_id(id).map_err(|beyond| ReadError::Fatal(beyond.into()))?;
        driver.document(&self.for_read(key)?, id).await
    }

    async fn scan_documents(&self, key: &ElectionKey, scan: &Scan) -> Result<Page, ReadError> {
        let driver = self.driver_for_read()?;
        let within = Scan { limit: scan.limit.clamp(1, driver.document_limits().max_page), ..scan.clone() };
        driver.scan_documents(&self.for_read(key)?, &within).await
    }
}
