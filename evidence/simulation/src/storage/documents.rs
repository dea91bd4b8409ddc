//! The documents of [`RemoteStorage`].

use super::{RemoteStorage, key};
use crate::{world::World, write::Write};
use async_trait::async_trait;
use ielections::{
    BatchOutcome, Document, DocumentId, DocumentLimits, DocumentWrite, Fence, FenceState, Page, ReadError,
    Scan, WriteError,
};
use vvm_storage::{Partition, SysVvmDocuments};

/// So small that batches are split and scans have several pages. A history fits into a document.
const LIMITS: DocumentLimits = DocumentLimits {
    max_id_bytes: 64,
    max_body_bytes: 40_000,
    max_batch: 4,
    max_batch_bytes: 50_000,
    max_page: 2,
};

/// A read of a fence, until it is answered or dropped.
struct Reading<'storage> {
    storage: &'storage RemoteStorage,
    key: u32,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.storage.world.fence_read_ends(self.storage.process, self.key);
    }
}

#[async_trait]
impl SysVvmDocuments for RemoteStorage {
    fn document_limits(&self) -> DocumentLimits {
        LIMITS
    }

    async fn write_documents(
        &self,
        at: &Partition,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError> {
        let outcome = self.write(Write::Batch(key(at), *fence, batch.into())).await?;
        Ok(outcome.map_or(BatchOutcome::Written, |_| BatchOutcome::Refused))
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let key = key(at);
        let process = self.process;
        self.world.fence_read_begins(process, key);
        self.world.asks_documents(process);
        let _reading = Reading { storage: self, key };
        let look = move |world: &World| {
            world.fence_read_ends(process, key);
            world.look(|records, now| records.fence_state(key, now))
        };
        self.ask(look).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        let (key, id) = (key(at), id.clone());
        self.world.asks_documents(self.process);
        self.ask(move |world| world.look(|records, _| records.document(key, &id))).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        let (key, scan) = (key(at), scan.clone());
        self.ask(move |world| world.look(|records, _| records.page(key, &scan))).await
    }
}
