//! Looking at requests with each scan: a storage whose scans see, with one call, what operators ask, too.
//!
//! It stands right before the driver, below whoever counts calls, so that they count as the scans that they are.

use async_trait::async_trait;
use ielections::{Layer, ReadError, Slot, TtlStorage};
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
impl Layer<ElectionKey> for Lookout {
    fn beneath(&self) -> &dyn TtlStorage<ElectionKey> {
        &*self.storage
    }

    async fn scan(&self, keys: &[ElectionKey]) -> Result<Vec<Slot>, ReadError> {
        let (slots, requests) = self.storage.scan_with_requests(&self.cluster, keys).await?;
        self.take_note(requests);
        Ok(slots)
    }
}
