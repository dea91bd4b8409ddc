//! The documents behind the network, if the storage has any.

use super::{FaultyStorage, Verb};
use crate::{
    BatchOutcome, Document, DocumentId, DocumentLimits, DocumentStorage, DocumentWrite, Fence, FenceState,
    Key, Page, ReadError, Scan, TtlStorage, WriteError,
};
use async_trait::async_trait;
use std::sync::Arc;

/// `FaultyStorage::documents` is `Some` only if the storage has documents, so this never panics.
fn of<K: Key>(storage: &dyn TtlStorage<K>) -> &dyn DocumentStorage<K> {
    storage.documents().expect("the storage has documents")
}

#[async_trait]
impl<K: Key> DocumentStorage<K> for FaultyStorage<K> {
    fn document_limits(&self) -> DocumentLimits {
        of(&*self.storage).document_limits()
    }

    async fn write_documents(
        &self,
        key: &K,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError> {
        let (storage, key, fence, batch) = (Arc::clone(&self.storage), key.clone(), *fence, batch.to_vec());
        self.write(
            Verb::WriteDocuments,
            async move { of(&*storage).write_documents(&key, &fence, &batch).await },
        )
        .await
    }

    async fn fence_state(&self, key: &K) -> Result<FenceState, ReadError> {
        self.read(Verb::FenceState, of(&*self.storage).fence_state(key)).await
    }

    async fn document(&self, key: &K, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.read(Verb::Document, of(&*self.storage).document(key, id)).await
    }

    async fn scan_documents(&self, key: &K, scan: &Scan) -> Result<Page, ReadError> {
        self.read(Verb::ScanDocuments, of(&*self.storage).scan_documents(key, scan)).await
    }
}
