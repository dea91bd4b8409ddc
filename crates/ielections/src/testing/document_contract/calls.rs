//! Calls on a busy storage, repeated until they are answered, and the outcome of a write (I7).
//! [`LONGEST_CASE`](crate::testing::contract::LONGEST_CASE) bounds the attempts.

use crate::{
    BatchOutcome, Document, DocumentId, DocumentStorage, DocumentWrite, Fence, FenceState, Key, Page,
    ReadError, Scan, TtlStorage, WriteError,
};

/// The documents of a handle.
pub(super) fn documents<K: Key>(handle: &dyn TtlStorage<K>) -> &dyn DocumentStorage<K> {
    handle.documents().expect("a storage with documents")
}

/// `None` if the read was not answered and must be repeated.
fn answered<T>(outcome: Result<T, ReadError>) -> Option<T> {
    match outcome {
        Ok(answer) => Some(answer),
        Err(ReadError::Unavailable(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

pub(super) async fn state<K: Key>(handle: &dyn TtlStorage<K>, key: &K) -> FenceState {
    loop {
        if let Some(state) = answered(documents(handle).fence_state(key).await) {
            return state;
        }
        tokio::task::yield_now().await;
    }
}

pub(super) async fn document<K: Key>(
    handle: &dyn TtlStorage<K>,
    key: &K,
    id: &DocumentId,
) -> Option<Document> {
    loop {
        if let Some(document) = answered(documents(handle).document(key, id).await) {
            return document;
        }
        tokio::task::yield_now().await;
    }
}

async fn page<K: Key>(handle: &dyn TtlStorage<K>, key: &K, scan: &Scan) -> Page {
    loop {
        if let Some(page) = answered(documents(handle).scan_documents(key, scan).await) {
            return page;
        }
        tokio::task::yield_now().await;
    }
}

/// Reads all pages of a scan, and checks that each keeps to it.
pub(super) async fn scanned<K: Key>(handle: &dyn TtlStorage<K>, key: &K, mut scan: Scan) -> Vec<Document> {
    let most = scan.limit.min(documents(handle).document_limits().max_page);
    let mut all: Vec<Document> = Vec::new();
    loop {
        let Page { documents, next } = page(handle, key, &scan).await;
        assert!(documents.len() <= most, "{} documents on a page of {most}", documents.len());
        for document in documents {
            assert!(scan.takes(&document.id), "{:?} does not belong to {scan:?}", document.id);
            if let Some(before) = all.last() {
                assert!(before.id < document.id, "{:?} behind {:?}", document.id, before.id);
            }
            all.push(document);
        }
        let Some(next) = next else { return all };
        assert!(scan.after.as_ref().is_none_or(|after| *after < next), "{scan:?} comes back to {next:?}");
        assert!(all.last().is_none_or(|last| last.id <= next), "{scan:?} goes back to {next:?}");
        scan.after = Some(next);
        // A storage that never waits would not let other tasks run between two pages.
        tokio::task::yield_now().await;
    }
}

/// Sends a batch. Returns `None` if it may have been applied, or may still be.
pub(super) async fn sent<K: Key>(
    handle: &dyn TtlStorage<K>,
    key: &K,
    fence: &Fence,
    batch: &[DocumentWrite],
) -> Option<BatchOutcome> {
    loop {
        match documents(handle).write_documents(key, fence, batch).await {
            Ok(outcome) => return Some(outcome),
            Err(WriteError::NotApplied(_)) => tokio::task::yield_now().await,
            Err(WriteError::Unknown(_)) => return None,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Sends the only batch in flight of a leader, so that the count shows its outcome.
pub(super) async fn settled<K: Key>(
    handle: &dyn TtlStorage<K>,
    key: &K,
    fence: &Fence,
    batch: &[DocumentWrite],
) -> BatchOutcome {
    let mut undecided = false;
    loop {
        match sent(handle, key, fence, batch).await {
            Some(BatchOutcome::Refused) if undecided => {
                let state = state(handle, key).await;
                // While it leads, only its batches count. After that the count still shows the outcome,
                // unless the next leader has written already.
                return if state.last > fence.after { BatchOutcome::Written } else { BatchOutcome::Refused };
            }
            Some(outcome) => return outcome,
            None => undecided = true,
        }
    }
}
