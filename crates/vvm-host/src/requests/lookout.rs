//! Looking at requests with each scan: a storage whose scans see, with one call, what operators ask, too.
//!
//! It stands right before the driver, below whoever counts calls, so that they count as the scans that they are.

use async_trait::async_trait;
use ielections::{
    Claim, Delete, DocumentStorage, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, TtlStorage,
    Vacant, WriteError,
};
use std::sync::Arc;
use tokio::sync::watch;
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, Requests};

/// A storage, and what was last seen to be asked of one cluster in it.
#[derive(Debug)]
pub(crate) struct Lookout {
    pub(crate) storage: Arc<ElectionsTtlStorage>,
    pub(crate) cluster: ClusterName,
    seen: watch::Sender<Requests>,
}

impl Lookout {
    /// In `storage`, for `cluster`.
    pub(crate) fn of(storage: Arc<ElectionsTtlStorage>, cluster: ClusterName) -> Self {
        Self { storage, cluster, seen: watch::Sender::default() }
    }

    /// What was seen, as it changes.
    pub(crate) fn seen(&self) -> watch::Receiver<Requests> {
        self.seen.subscribe()
    }

    /// Looks at the requests alone. May be stale.
    ///
    /// # Errors
    /// When the storage fails.
    ///
    /// # Cancel safety
    /// May be dropped at will.
    pub(crate) async fn look(&self) -> Result<Requests, ReadError> {
        let requests = self.storage.peek_requests(&self.cluster).await?;
        self.take_note(requests.clone());
        Ok(requests)
    }

    fn take_note(&self, requests: Requests) {
        self.seen.send_if_modified(|seen| {
            let is_news = *seen != requests;
            *seen = requests;
            is_news
        });
    }
}

#[async_trait]
impl TtlStorage<ElectionKey> for Lookout {
    fn limits(&self) -> Limits {
        self.storage.limits()
    }

    async fn insert_if_not_exist(
        &self,
        key: &ElectionKey,
        vacant: Vacant,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.storage.insert_if_not_exist(key, vacant, entry).await
    }

    async fn take_over(
        &self,
        key: &ElectionKey,
        observed: &Entry,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.storage.take_over(key, observed, entry).await
    }

    async fn compare_and_swap(
        &self,
        key: &ElectionKey,
        held: &Entry,
        entry: &Entry,
    ) -> Result<Swap, WriteError> {
        self.storage.compare_and_swap(key, held, entry).await
    }

    async fn compare_and_delete(
        &self,
        key: &ElectionKey,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        self.storage.compare_and_delete(key, incarnation, epoch).await
    }

    async fn get(&self, key: &ElectionKey) -> Result<Slot, ReadError> {
        self.storage.get(key).await
    }

    async fn scan(&self, keys: &[ElectionKey]) -> Result<Vec<Slot>, ReadError> {
        let (slots, requests) = self.storage.scan_with_requests(&self.cluster, keys).await?;
        self.take_note(requests);
        Ok(slots)
    }

    fn documents(&self) -> Option<&dyn DocumentStorage<ElectionKey>> {
        self.storage.documents()
    }

    async fn close(&self) {
        self.storage.close().await;
    }
}
