//! The verbs of documents.

use super::{
    super::{
        errors::DriverError,
        rows::{self, Row, SETTINGS},
    },
    PostgresStorage,
};
use crate::{
    key::Partition,
    step::{Done, Shown},
};
use ielections::{
    Document, DocumentId, DocumentLimits, DocumentWrite, Fence, FenceState, Page, ReadError, Scan, WriteError,
};

impl PostgresStorage {
    pub(super) fn document_limits(&self) -> DocumentLimits {
        DocumentLimits {
            max_id_bytes: 1 << 10,
            max_body_bytes: 1 << 20,
            // These bound how long a batch holds the lock that renewals wait for: tens of milliseconds.
            max_batch: 256,
            max_batch_bytes: 2 << 20,
            max_page: 256,
        }
    }

    pub(super) async fn write_documents(
        &self,
        at: &Partition,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<Done, WriteError> {
        let history = self.history().ok_or_else(|| DriverError::OtherHistory.of_write())?;
        let write = rows::write_documents(at, fence, batch, &history);
        let outcome = async {
            let answer = self.locking(&format!("{}; {write}", rows::locked(at))).await?;
            if answer.affected(SETTINGS + 1) > 0 {
                return Ok(Done::Applied);
            }
            if self.is_same_history(&answer, 2)? {
                Ok(Done::Refused(Shown::Nothing))
            } else {
                Err(DriverError::OtherHistory)
            }
        };
        outcome.await.map_err(DriverError::of_write)
    }

    pub(super) async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let shown = self.read_slots(&rows::locked(at), Some(at)).await;
        shown.and_then(|shown| Ok(rows::fence(shown.first())?)).map_err(DriverError::of_read)
    }

    pub(super) async fn document(
        &self,
        at: &Partition,
        id: &DocumentId,
    ) -> Result<Option<Document>, ReadError> {
        let answer = self.connections.ask(&rows::document(at, id)).await;
        let document = answer.and_then(|answer| Ok(answer.row(0).map(Row::document).transpose()?));
        document.map_err(DriverError::of_read)
    }

    pub(super) async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        let answer = self.connections.ask(&rows::documents_page(at, scan)).await;
        answer.and_then(|answer| Ok(Row::page(answer.rows(0))?)).map_err(DriverError::of_read)
    }
}
