//! [`MockTtlStorage`]: a storage whose answers a test writes, verb by verb.

use crate::{
    record::{Entry, Epoch, Incarnation, Slot, Vacant},
    storage::{Claim, Delete, Key, Limits, ReadError, Swap, TtlStorage, WriteError},
    testing::{mocked, verified},
};
use async_trait::async_trait;
use std::time::Duration;

// The provided methods are not mocked: `scan_some` then asks `expect_scan`, as a driver without one of its own does.
// `limits` and `close` are no questions of most tests, so they have answers.
mockall::mock! {
    /// A [`TtlStorage`] that answers as a test expects: `storage.expect_scan().returning(…)`, and so for each required
    /// verb ([mockall](https://docs.rs/mockall) has the rest). It panics at a call that was not expected, or if one is
    /// missing when it is dropped. The engine survives that: [`in_mock_time`](super::in_mock_time) panics again at its
    /// end. `limits` and `close` need no expectation, and there are no documents. The [module](super) has an example.
    #[derive(Debug)]
    pub TtlStorage<K: Key> {
        /// Answers [`TtlStorage::insert_if_not_exist`].
        pub async fn insert_if_not_exist(
            &self,
            key: &K,
            vacant: Vacant,
            entry: &Entry,
        ) -> Result<Claim, WriteError>;
        /// Answers [`TtlStorage::take_over`].
        pub async fn take_over(&self, key: &K, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError>;
        /// Answers [`TtlStorage::compare_and_swap`].
        pub async fn compare_and_swap(
            &self,
            key: &K,
            held: &Entry,
            entry: &Entry,
        ) -> Result<Swap, WriteError>;
        /// Answers [`TtlStorage::compare_and_delete`].
        pub async fn compare_and_delete(
            &self,
            key: &K,
            incarnation: Incarnation,
            epoch: Epoch,
        ) -> Result<Delete, WriteError>;
        /// Answers [`TtlStorage::get`].
        pub async fn get(&self, key: &K) -> Result<Slot, ReadError>;
        /// Answers [`TtlStorage::scan`].
        pub async fn scan(&self, keys: &[K]) -> Result<Vec<Slot>, ReadError>;
    }
}

impl<K: Key> MockTtlStorage<K> {
    /// A storage of vacant slots, which applies each claim and each release. Renewals are the test's.
    pub fn vacant() -> Self {
        let mut storage = Self::new();
        storage.expect_scan().returning(|keys| Ok(vec![Slot::Vacant(Vacant::default()); keys.len()]));
        storage.expect_insert_if_not_exist().returning(|_, _, _| Ok(Claim::Claimed));
        storage.expect_compare_and_delete().returning(|_, _, _| Ok(Delete::Deleted));
        storage
    }
}

impl<K: Key> Drop for MockTtlStorage<K> {
    fn drop(&mut self) {
        verified(|| self.checkpoint());
    }
}

#[async_trait]
impl<K: Key> TtlStorage<K> for MockTtlStorage<K> {
    fn limits(&self) -> Limits {
        Limits {
            min_ttl: Duration::from_millis(1),
            max_key_bytes: Limits::LEAST_KEY_BYTES,
            max_value_bytes: 255,
            scan_batch: 64,
        }
    }

    // `Self::` finds the mocked function of that name first.
    async fn insert_if_not_exist(&self, key: &K, vacant: Vacant, entry: &Entry) -> Result<Claim, WriteError> {
        mocked(Self::insert_if_not_exist(self, key, vacant, entry)).await
    }

    async fn take_over(&self, key: &K, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError> {
        mocked(Self::take_over(self, key, observed, entry)).await
    }

    async fn compare_and_swap(&self, key: &K, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        mocked(Self::compare_and_swap(self, key, held, entry)).await
    }

    async fn compare_and_delete(
        &self,
        key: &K,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        mocked(Self::compare_and_delete(self, key, incarnation, epoch)).await
    }

    async fn get(&self, key: &K) -> Result<Slot, ReadError> {
        mocked(Self::get(self, key)).await
    }

    async fn scan(&self, keys: &[K]) -> Result<Vec<Slot>, ReadError> {
        mocked(Self::scan(self, keys)).await
    }

    async fn close(&self) {}
}
