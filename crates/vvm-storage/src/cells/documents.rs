//! The verbs of documents: a batch is one more conditional write on the slot's cell.

use super::{CellStorage, Cells, Known, content::SlotCell};
use crate::{Partition, SysVvmDocuments};
use async_trait::async_trait;
use ielections::{
    BatchOutcome, Document, DocumentId, DocumentLimits, DocumentWrite, Fence, FenceState, Page, ReadError,
    Scan, WriteError,
};

/// Room that documents leave for a record with the longest key and holder.
const RECORD_ROOM: usize = 16 << 10;

#[async_trait]
impl<C: CellStorage> SysVvmDocuments for Cells<C> {
    fn document_limits(&self) -> DocumentLimits {
        // A quarter of the cell: the rest is for other documents, and for ids in the line of JSON.
        let batch = (self.storage.limits().max_cell_bytes.saturating_sub(RECORD_ROOM)) / 4;
        DocumentLimits {
            max_id_bytes: 1 << 10,
            max_body_bytes: batch.saturating_sub(1 << 10),
            max_batch: 256,
            max_batch_bytes: batch,
            max_page: 1024,
        }
    }

    async fn write_documents(
        &self,
        at: &Partition,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError> {
        let written = self.change(at, RECORD_ROOM, |Known { content, .. }| {
            // (I2) Epoch and incarnation name the leadership, the number names the batch.
            let leads = content.slot.entry().is_some_and(|entry| entry.is_of(fence.incarnation, fence.epoch));
            if !leads || !content.documents.admits(fence, batch) {
                return Err(());
            }
            let mut documents = content.documents.clone();
            documents.apply(batch);
            Ok(SlotCell { documents, ..content.clone() })
        });
        Ok(written.await?.map_or(BatchOutcome::Refused, |()| BatchOutcome::Written))
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let content = self.fresh(at).await?.content;
        Ok(FenceState { last: content.documents.last(), slot: content.slot })
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        Ok(self.fresh(at).await?.content.documents.get(id))
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        Ok(self.fresh(at).await?.content.documents.scan(scan))
    }
}
