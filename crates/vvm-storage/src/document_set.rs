use bytes::Bytes;
use ielections::{Document, DocumentId, DocumentVersion, DocumentWrite, Page, Scan};
use std::{collections::BTreeMap, ops::Bound};

/// Documents in the order of their ids. The number of the last batch stays when all are deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DocumentSet {
    last: DocumentVersion,
    standing: BTreeMap<DocumentId, Body>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Body {
    version: DocumentVersion,
    bytes: Bytes,
}

impl Default for DocumentSet {
    fn default() -> Self {
        Self { last: DocumentVersion::NONE, standing: BTreeMap::new() }
    }
}

#[cfg(feature = "cells")]
impl DocumentSet {
    pub(crate) fn after(last: DocumentVersion) -> Self {
        Self { last, standing: BTreeMap::new() }
    }

    pub(crate) fn restore(&mut self, id: DocumentId, version: DocumentVersion, bytes: Bytes) {
        self.standing.insert(id, Body { version, bytes });
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&DocumentId, DocumentVersion, &Bytes)> {
        self.standing.iter().map(|(id, body)| (id, body.version, &body.bytes))
    }
}

impl DocumentSet {
    pub(crate) fn last(&self) -> DocumentVersion {
        self.last
    }

    pub(crate) fn version(&self, id: &DocumentId) -> Option<DocumentVersion> {
        Some(self.standing.get(id)?.version)
    }

    pub(crate) fn apply(&mut self, version: DocumentVersion, batch: &[DocumentWrite]) {
        self.last = version;
        for write in batch {
            match write {
                DocumentWrite::Put { id, body, .. } => {
                    // Both are copied: a small slice would keep its whole buffer in memory.
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

    pub(crate) fn get(&self, id: &DocumentId) -> Option<Document> {
        let (id, body) = self.standing.get_key_value(id)?;
        Some(body.document(id))
    }

    pub(crate) fn scan(&self, scan: &Scan) -> Page {
        let range = self.standing.range::<[u8], _>((scan.start(), Bound::Unbounded));
        let mut range = range.take_while(|(id, _)| scan.takes(id)).map(|(id, body)| body.document(id));
        let documents: Vec<_> = range.by_ref().take(scan.limit).collect();
        let next = range.next().and_then(|_| Some(documents.last()?.id.clone()));
        Page { documents, next }
    }
}

impl Body {
    fn document(&self, id: &DocumentId) -> Document {
        Document { id: id.clone(), version: self.version, body: self.bytes.clone() }
    }
}
