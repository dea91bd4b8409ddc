//! The documents of a partition. A partition has a set of them from its first batch on, for good.

use super::{Leader, Rows};
use crate::Partition;
use ielections::{BatchOutcome, Document, DocumentId, DocumentVersion, DocumentWrite, Fence, Page, Scan};

impl Rows {
    pub(in super::super) fn last_batch(&self, at: &Partition) -> DocumentVersion {
        self.documents.get(at).map_or(DocumentVersion::NONE, |documents| documents.last())
    }

    pub(in super::super) fn write_documents(
        &mut self,
        at: &Partition,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> BatchOutcome {
        // (I2) Epoch and incarnation name the leadership, the number names the batch.
        let leads = |leader: &Leader| leader.is_of(fence.incarnation, fence.epoch);
        if !self.leaders.get(at).is_some_and(leads) {
            return BatchOutcome::Refused;
        }
        let documents = match self.documents.get_mut(at) {
            Some(documents) => documents,
            // Only here the key is copied: it stays for good.
            None => self.documents.entry(at.clone()).or_default(),
        };
        if !documents.admits(fence, batch) {
            return BatchOutcome::Refused;
        }
        documents.apply(batch);
        BatchOutcome::Written
    }

    pub(in super::super) fn document(&self, at: &Partition, id: &DocumentId) -> Option<Document> {
        self.documents.get(at)?.get(id)
    }

    pub(in super::super) fn scan_documents(&self, at: &Partition, scan: &Scan) -> Page {
        let none = Page { documents: Vec::new(), next: None };
        self.documents.get(at).map_or(none, |documents| documents.scan(scan))
    }
}
