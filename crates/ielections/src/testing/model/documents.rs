//! The documents of the model, and its count of batches.

use super::{ModelStorage, State};
use crate::{
    BatchOutcome, Document, DocumentId, DocumentLimits, DocumentStorage, DocumentVersion, DocumentWrite,
    Fence, FenceState, Key, Page, ReadError, Scan, WriteError,
};
use async_trait::async_trait;
use std::collections::BTreeMap;

/// So small that a test reaches every limit quickly.
const LIMITS: DocumentLimits = DocumentLimits {
    max_id_bytes: 256,
    max_body_bytes: 1000,
    max_batch: 32,
    max_batch_bytes: 8000,
    max_page: 10,
};

/// The documents of one key.
#[derive(Clone, Debug, Default)]
pub(super) struct Documents {
    last: DocumentVersion,
    standing: BTreeMap<DocumentId, Document>,
}

impl<K: Key> State<K> {
    fn fence_state(&self, key: &K) -> FenceState {
        let last = self.documents.get(key).map_or(DocumentVersion::NONE, |documents| documents.last);
        FenceState { slot: self.slot(key), last }
    }
}

impl Documents {
    fn write(&mut self, version: DocumentVersion, write: &DocumentWrite) {
        match write {
            DocumentWrite::Put { id, body, .. } => {
                let document = Document { id: id.clone(), version, body: body.clone() };
                self.standing.insert(id.clone(), document);
            }
            DocumentWrite::Delete { id, .. } => {
                self.standing.remove(id);
            }
        }
    }
}

#[async_trait]
impl<K: Key> DocumentStorage<K> for ModelStorage<K> {
    fn document_limits(&self) -> DocumentLimits {
        LIMITS
    }

    async fn write_documents(
        &self,
        key: &K,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError> {
        let mut state = self.for_write()?;
        LIMITS.check(batch).map_err(|beyond| WriteError::Fatal(beyond.into()))?;
        if !state.fence_state(key).admits(fence) {
            return Ok(BatchOutcome::Refused);
        }
        let documents = state.documents.entry(key.clone()).or_default();
        let version = |id| documents.standing.get(id).map(|document| document.version);
        if !batch.iter().all(|write| write.only_if().holds(version(write.id()))) {
            return Ok(BatchOutcome::Refused);
        }
        documents.last = fence.after.next();
        batch.iter().for_each(|write| documents.write(fence.after.next(), write));
        Ok(BatchOutcome::Written)
    }

    async fn fence_state(&self, key: &K) -> Result<FenceState, ReadError> {
        Ok(self.for_read()?.fence_state(key))
    }

    async fn document(&self, key: &K, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        let state = self.for_read()?;
        LIMITS.check_id(id).map_err(|beyond| ReadError::Fatal(beyond.into()))?;
        Ok(state.documents.get(key).and_then(|documents| documents.standing.get(id)).cloned())
    }

    async fn scan_documents(&self, key: &K, scan: &Scan) -> Result<Page, ReadError> {
        let state = self.for_read()?;
        let standing = state.documents.get(key).into_iter().flat_map(|documents| documents.standing.values());
        let mut left = standing.filter(|document| scan.takes(&document.id)).cloned();
        let documents: Vec<_> = left.by_ref().take(scan.limit.clamp(1, LIMITS.max_page)).collect();
        let next = left.next().and_then(|_| Some(documents.last()?.id.clone()));
        Ok(Page { documents, next })
    }
}
