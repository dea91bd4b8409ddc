//! Calls on a busy storage are repeated, for [`LONGEST_CASE`](crate::testing::contract::LONGEST_CASE) at most.

pub(super) use crate::testing::{id, put, put_if};

use super::StorageUnderTest;
use crate::{
    BatchOutcome, Document, DocumentId, DocumentStorage, DocumentVersion, DocumentWrite, Entry, Fence,
    FenceState, Key, OnlyIf, Page, Scan, TtlStorage, WriteError,
    testing::contract::{claims::answered, scene::Scene},
};
use bytes::Bytes;

pub(super) struct Stage<K> {
    pub(super) scene: Scene<K>,
    pub(super) entry: Entry,
}

impl<K: Key> Stage<K> {
    pub(super) async fn empty<S: StorageUnderTest<Key = K>>(storage: &S) -> Self {
        let scene = Scene::set(storage).await;
        let entry = scene.entry(1, 5);
        Self { scene, entry }
    }

    pub(super) async fn led<S: StorageUnderTest<Key = K>>(storage: &S) -> Self {
        Self::empty(storage).await.claimed(None).await
    }

    pub(super) async fn led_at<S: StorageUnderTest<Key = K>>(storage: &S, name: &[u8]) -> Self {
        let mut stage = Self::empty(storage).await;
        stage.scene.key = storage.key(name);
        stage.claimed(None).await
    }

    async fn claimed(self, last_epoch: Option<u64>) -> Self {
        self.scene.claim(last_epoch, &self.entry).await;
        self
    }

    /// The next leader takes the record over, and the case writes as that leader.
    pub(super) async fn taken_over(&mut self) {
        let next = self.next_leader();
        self.scene.take_over(&self.entry, &next).await;
        self.entry = next;
    }

    pub(super) async fn handed_over(&mut self) {
        let next = self.next_leader();
        self.scene.release(&self.entry).await;
        self.scene.claim(Some(self.entry.epoch.get()), &next).await;
        self.entry = next;
    }

    fn next_leader(&self) -> Entry {
        let author = self.entry.incarnation().as_bytes()[0] + 1;
        self.scene.entry(author, self.entry.epoch.get() + 1)
    }

    pub(super) fn fence(&self, after: u64) -> Fence {
        fence(&self.entry, after)
    }

    pub(super) async fn written(&self, after: u64, batch: &[DocumentWrite]) {
        let (documents, fence) = (documents(&*self.scene.here), self.fence(after));
        let outcome = documents.write_documents(&self.scene.key, &fence, batch).await.unwrap();
        assert_eq!(outcome, BatchOutcome::Written, "{batch:?} after {after}");
    }

    /// Writes in as many batches as necessary. Returns the number of the last one.
    pub(super) async fn all_written(&self, mut after: u64, writes: &[DocumentWrite]) -> u64 {
        let limits = documents(&*self.scene.here).document_limits();
        let mut left = writes;
        while !left.is_empty() {
            let fits = |count: &usize| limits.check(&left[..*count]).is_ok();
            let most = (1..=left.len().min(limits.max_batch)).take_while(fits).last();
            let (batch, rest) = left.split_at(most.expect("a document fits into a batch"));
            self.written(after, batch).await;
            (left, after) = (rest, after + 1);
        }
        after
    }

    pub(super) async fn refuses(&self, what: &str, fence: &Fence, batch: &[DocumentWrite]) {
        let before = (self.state().await, self.shown().await);
        for handle in [&self.scene.here, &self.scene.there] {
            let outcome = documents(&**handle).write_documents(&self.scene.key, fence, batch).await.unwrap();
            assert_eq!(outcome, BatchOutcome::Refused, "{what}");
        }
        assert_eq!((self.state().await, self.shown().await), before, "{what}");
    }

    async fn state(&self) -> (u64, Option<Entry>) {
        let state = read_state(&*self.scene.there, &self.scene.key).await;
        (state.last.get(), state.slot.entry().cloned())
    }

    pub(super) async fn last(&self) -> u64 {
        self.state().await.0
    }

    pub(super) async fn document(&self, id: &DocumentId) -> Option<Document> {
        read_document(&*self.scene.there, &self.scene.key, id).await
    }

    pub(super) async fn shown(&self) -> Vec<Document> {
        self.scanned(Scan { limit: usize::MAX, ..Scan::default() }).await
    }

    pub(super) async fn scanned(&self, scan: Scan) -> Vec<Document> {
        scan_all(&*self.scene.there, &self.scene.key, scan).await
    }
}

pub(super) fn fence(entry: &Entry, after: u64) -> Fence {
    Fence { epoch: entry.epoch, incarnation: entry.incarnation(), after: version(after) }
}

pub(super) const fn version(number: u64) -> DocumentVersion {
    DocumentVersion::from_stored(number)
}

pub(super) fn delete(name: impl AsRef<[u8]>) -> DocumentWrite {
    delete_if(name, OnlyIf::Always)
}

pub(super) fn delete_if(name: impl AsRef<[u8]>, only_if: OnlyIf) -> DocumentWrite {
    DocumentWrite::Delete { id: id(name), only_if }
}

pub(super) fn document(name: impl AsRef<[u8]>, number: u64, body: impl AsRef<[u8]>) -> Document {
    Document { id: id(name), version: version(number), body: Bytes::copy_from_slice(body.as_ref()) }
}

pub(super) fn documents<K: Key>(handle: &dyn TtlStorage<K>) -> &dyn DocumentStorage<K> {
    handle.documents().expect("a storage with documents")
}

pub(super) async fn read_state<K: Key>(handle: &dyn TtlStorage<K>, key: &K) -> FenceState {
    answered(|| documents(handle).fence_state(key)).await
}

pub(super) async fn read_document<K: Key>(
    handle: &dyn TtlStorage<K>,
    key: &K,
    id: &DocumentId,
) -> Option<Document> {
    answered(|| documents(handle).document(key, id)).await
}

/// Reads all pages of a scan, and checks that each keeps to it.
pub(super) async fn scan_all<K: Key>(handle: &dyn TtlStorage<K>, key: &K, mut scan: Scan) -> Vec<Document> {
    let most = scan.limit.clamp(1, documents(handle).document_limits().max_page);
    let mut all: Vec<Document> = Vec::new();
    loop {
        let page = answered(|| documents(handle).scan_documents(key, &scan)).await;
        let Page { documents: shown, next } = page;
        assert!(shown.len() <= most, "{} documents on a page of {most}", shown.len());
        for document in shown {
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
                let state = read_state(handle, key).await;
                // While it leads, only its batches count. After that the count still shows the outcome,
                // unless the next leader has written already.
                return if state.last > fence.after { BatchOutcome::Written } else { BatchOutcome::Refused };
            }
            Some(outcome) => return outcome,
            None => undecided = true,
        }
    }
}
