//! The verbs of documents: a batch is one conditional batch of CQL on one partition, sent once.

use super::{
    super::{errors::DriverError, open::MAX_PAGE},
    ScyllaStorage,
};
use crate::{
    key::Partition,
    step::{Done, Shown},
};
use ielections::{
    Document, DocumentId, DocumentLimits, DocumentWrite, Entropy as _, Fence, FenceState, Page, ReadError,
    Scan, WriteError,
};

impl ScyllaStorage {
    pub(super) fn document_limits(&self) -> DocumentLimits {
        DocumentLimits {
            // CQL's limit is 65,535; the server keeps them in an index.
            max_id_bytes: 1 << 10,
            // Cassandra and ScyllaDB allow half a segment of the commit log, 16 MiB or more. But a
            // transaction sends its batch to each replica twice, and renewals wait for it. 1 MiB takes less
            // than 0.1 s.
            max_batch_bytes: 1 << 20,
            max_body_bytes: 64 << 10,
            max_batch: 256,
            max_page: MAX_PAGE.into(),
        }
    }

    pub(super) async fn write_documents(
        &self,
        at: &Partition,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<Done, WriteError> {
        let mut id = [0; 16];
        self.entropy.fill(&mut id);
        let answer = self.statements()?.write_documents(at.as_bytes(), fence, &id, batch).await;
        let outcome = answer.and_then(|columns| {
            // The server may lose ours to a transaction that then finishes it, find our batch when it tries
            // again, and refuse it.
            let written = columns.applied()? || columns.last_batch_is(&id)?;
            Ok(if written { Done::Applied } else { Done::Refused(Shown::Nothing) })
        });
        outcome.map_err(DriverError::into_write_error)
    }

    pub(super) async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let answer = self.statements()?.read(at.as_bytes()).await;
        let state =
            answer.and_then(|columns| Ok(FenceState { slot: columns.slot()?, last: columns.last_batch()? }));
        state.map_err(DriverError::into_read_error)
    }

    pub(super) async fn document(
        &self,
        at: &Partition,
        id: &DocumentId,
    ) -> Result<Option<Document>, ReadError> {
        self.statements()?.document(at.as_bytes(), id).await.map_err(DriverError::into_read_error)
    }

    pub(super) async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        self.statements()?.scan_documents(at.as_bytes(), scan).await.map_err(DriverError::into_read_error)
    }
}
