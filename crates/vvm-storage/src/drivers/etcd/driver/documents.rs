//! The verbs of documents.

use super::{
    super::{
        errors::DriverError,
        rows::{document_of, page_of},
    },
    EtcdStorage,
};
use crate::{
    key::Partition,
    step::{Done, Shown},
};
use ielections::{
    Document, DocumentId, DocumentLimits, DocumentWrite, Fence, FenceState, Page, ReadError, Scan, WriteError,
};

impl EtcdStorage {
    pub(super) fn document_limits(&self) -> DocumentLimits {
        DocumentLimits {
            max_id_bytes: 512,
            max_body_bytes: 512 << 10,
            // A transaction has at most 128 comparisons: three for the fence, and two for each document.
            max_batch: 62,
            // A request has at most 1.5 MiB, of which 62 documents take 400 KiB for keys.
            max_batch_bytes: 1 << 20,
            max_page: 64,
        }
    }

    pub(super) async fn write_documents(
        &self,
        at: &Partition,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<Done, WriteError> {
        let request = self.keyspace.write_documents(at, fence, batch);
        let outcome = async {
            let answer = self.connections.transaction(&request).await?;
            if answer.succeeded {
                return Ok(Done::Applied);
            }
            self.keyspace.fence(answer)?;
            Ok(Done::Refused(Shown::Nothing))
        };
        outcome.await.map_err(DriverError::of_write)
    }

    pub(super) async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        self.read_with(self.keyspace.read(at), |answer| self.keyspace.fence(answer)).await
    }

    pub(super) async fn document(
        &self,
        at: &Partition,
        id: &DocumentId,
    ) -> Result<Option<Document>, ReadError> {
        let request = self.keyspace.document(at, id);
        let decode = |answer| Ok(document_of(&self.keyspace, at, self.keyspace.ranges(answer)?)?);
        self.read_with(request, decode).await
    }

    pub(super) async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        let request = self.keyspace.documents_page(at, scan);
        let decode = |answer| Ok(page_of(&self.keyspace, at, self.keyspace.ranges(answer)?)?);
        self.read_with(request, decode).await
    }
}
