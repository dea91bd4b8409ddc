//! [`RecordingStorage`]: a layer that records every claim and renewal, and changes none.

use super::leadership_log::LeadershipLog;
use async_trait::async_trait;
use ielections::{Claim, Entry, Layer, Swap, TtlStorage, Vacant, WriteError};
use std::sync::Arc;
use vvm_clock::SystemClock;
use vvm_storage::{ElectionKey, ElectionsTtlStorage};

/// The storage of one candidate.
#[derive(Clone, Debug)]
pub(super) struct RecordingStorage {
    pub(super) candidate: usize,
    pub(super) storage: ElectionsTtlStorage,
    pub(super) leaderships: Arc<LeadershipLog>,
}

#[async_trait]
impl Layer<ElectionKey> for RecordingStorage {
    fn beneath(&self) -> &dyn TtlStorage<ElectionKey> {
        &self.storage
    }

    async fn insert_if_not_exist(
        &self,
        key: &ElectionKey,
        vacant: Vacant,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.leaderships.claims(self.candidate, entry, None, SystemClock::read());
        self.storage.insert_if_not_exist(key, vacant, entry).await
    }

    async fn take_over(
        &self,
        key: &ElectionKey,
        observed: &Entry,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.leaderships.claims(self.candidate, entry, Some(observed), SystemClock::read());
        self.storage.take_over(key, observed, entry).await
    }

    async fn compare_and_swap(
        &self,
        key: &ElectionKey,
        held: &Entry,
        entry: &Entry,
    ) -> Result<Swap, WriteError> {
        self.leaderships.renews(entry);
        self.storage.compare_and_swap(key, held, entry).await
    }
}
