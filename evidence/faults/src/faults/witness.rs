//! Between elections and their storage: sees every write that is sent, and changes none.

use super::ledger::Ledger;
use async_trait::async_trait;
use ielections::{Claim, Entry, Layer, Swap, TtlStorage, Vacant, WriteError};
use std::sync::Arc;
use vvm_clock::SystemClock;
use vvm_storage::{ElectionKey, ElectionsTtlStorage};

/// The storage of one contender, watched.
#[derive(Clone, Debug)]
pub(super) struct Witness {
    pub(super) contender: usize,
    pub(super) storage: ElectionsTtlStorage,
    pub(super) ledger: Arc<Ledger>,
}

#[async_trait]
impl Layer<ElectionKey> for Witness {
    fn beneath(&self) -> &dyn TtlStorage<ElectionKey> {
        &self.storage
    }

    async fn insert_if_not_exist(
        &self,
        key: &ElectionKey,
        vacant: Vacant,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.ledger.claims(self.contender, entry, None, SystemClock::read());
        self.storage.insert_if_not_exist(key, vacant, entry).await
    }

    async fn take_over(
        &self,
        key: &ElectionKey,
        observed: &Entry,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.ledger.claims(self.contender, entry, Some(observed), SystemClock::read());
        self.storage.take_over(key, observed, entry).await
    }

    async fn compare_and_swap(
        &self,
        key: &ElectionKey,
        held: &Entry,
        entry: &Entry,
    ) -> Result<Swap, WriteError> {
        self.ledger.renews(entry);
        self.storage.compare_and_swap(key, held, entry).await
    }
}
