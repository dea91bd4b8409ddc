//! The documents of a partition: in the order of their ids, with the number of the last batch beside them.

use super::{Leader, Rows};
use crate::Partition;
use bytes::Bytes;
use ielections::{BatchOutcome, Document, DocumentId, DocumentVersion, DocumentWrite, Fence, Page, Scan};
use std::{collections::BTreeMap, ops::Bound};

/// What a partition has that took at least one batch. It stays when they are all deleted: the number goes on.
#[derive(Debug, Default)]
pub(super) struct Documents {
    last: DocumentVersion,
    standing: BTreeMap<DocumentId, Body>,
}

#[derive(Debug)]
struct Body {
    version: DocumentVersion,
    bytes: Bytes,
}

impl Rows {
    pub(in super::super) fn last_batch(&self, at: &Partition) -> DocumentVersion {
        self.documents.get(at).map_or(DocumentVersion::NONE, |documents| documents.last)
    }

    pub(in super::super) fn write_documents(
        &mut self,
        at: &Partition,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> BatchOutcome {
        // (I2) All three: the epoch and who has it say who leads, the number which batch of his this is.
        let leads = |leader: &Leader| leader.is_of(fence.incarnation, fence.epoch);
        if !self.leaders.get(at).is_some_and(leads) || self.last_batch(at) != fence.after {
            return BatchOutcome::Refused;
        }
        let standing = self.documents.get(at).map(|documents| &documents.standing);
        let version = |id| standing.and_then(|standing| Some(standing.get(id)?.version));
        if !batch.iter().all(|write| write.only_if().holds(version(write.id()))) {
            return BatchOutcome::Refused;
        }
        match self.documents.get_mut(at) {
            Some(documents) => documents.apply(fence.after.next(), batch),
            // Only here the key is copied: it stays for good.
            None => self.documents.entry(at.clone()).or_default().apply(fence.after.next(), batch),
        }
        BatchOutcome::Written
    }

    pub(in super::super) fn document(&self, at: &Partition, id: &DocumentId) -> Option<Document> {
        let (id, body) = self.documents.get(at)?.standing.get_key_value(id)?;
        Some(body.document(id))
    }

    pub(in super::super) fn scan_documents(&self, at: &Partition, scan: &Scan) -> Page {
        let Some(Documents { standing, .. }) = self.documents.get(at) else {
            return Page { documents: Vec::new(), next: None };
        };
        let range = standing.range::<[u8], _>((scan.start(), Bound::Unbounded));
        let mut range = range.take_while(|(id, _)| scan.takes(id)).map(|(id, body)| body.document(id));
        let documents: Vec<_> = range.by_ref().take(scan.limit).collect();
        let next = range.next().and_then(|_| Some(documents.last()?.id.clone()));
        Page { documents, next }
    }
}

impl Documents {
    fn apply(&mut self, version: DocumentVersion, batch: &[DocumentWrite]) {
        self.last = version;
        for write in batch {
            match write {
                DocumentWrite::Put { id, body, .. } => {
                    // Copied, as the id is: a small part of a large buffer would keep all of it.
                    let body = Body { version, bytes: Bytes::copy_from_slice(body) };
                    match self.standing.get_mut(id) {
                        Some(stands) => *stands = body,
                        None => drop(self.standing.insert(id.detached(), body)),
                    }
                }
                DocumentWrite::Delete { id, .. } => drop(self.standing.remove(id)),
            }
        }
    }
}

impl Body {
    fn document(&self, id: &DocumentId) -> Document {
        Document { id: id.clone(), version: self.version, body: self.bytes.clone() }
    }
}
