use crate::{
    key::Partition,
    step::{Step, StepOutcome},
    sysvvm::SysVvmStorage,
};
use async_trait::async_trait;
use ielections::{
    Limits, ReadError, Slot, Vacant, WriteError,
    testing::{mocked, verified},
};
use std::time::Duration;

// As `ielections::testing::MockTtlStorage`: provided functions are not mocked, and `limits` and `close` have answers.
mockall::mock! {
    /// A [`SysVvmStorage`] that answers as a test expects: `storage.expect_read().returning(…)`, and so for each
    /// required function ([mockall](https://docs.rs/mockall) has the rest). It panics as
    /// [`MockTtlStorage`](ielections::testing::MockTtlStorage) does. `limits` and `close` need no expectation, and
    /// there are no documents. The [module](crate::testing) has an example.
    #[derive(Debug)]
    pub SysVvmStorage {
        /// Answers [`SysVvmStorage::commit`].
        pub async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError>;
        /// Answers [`SysVvmStorage::read`].
        pub async fn read(&self, at: Partition) -> Result<Slot, ReadError>;
        /// Answers [`SysVvmStorage::peek`].
        pub async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError>;
        /// Answers [`SysVvmStorage::setting`].
        pub async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError>;
    }
}

impl MockSysVvmStorage {
    /// A storage of vacant slots, without settings. What becomes of steps is the test's.
    pub fn vacant() -> Self {
        let mut storage = Self::new();
        storage.expect_peek().returning(|at| Ok(vec![Slot::Vacant(Vacant::default()); at.len()]));
        storage.expect_read().returning(|_| Ok(Slot::Vacant(Vacant::default())));
        storage.expect_setting().returning(|_| Ok(None));
        storage
    }
}

impl Drop for MockSysVvmStorage {
    fn drop(&mut self) {
        verified(|| self.checkpoint());
    }
}

#[async_trait]
impl SysVvmStorage for MockSysVvmStorage {
    fn limits(&self) -> Limits {
        Limits {
            min_ttl: Duration::from_millis(1),
            max_key_bytes: Limits::LEAST_KEY_BYTES,
            max_value_bytes: 255,
            scan_batch: 64,
        }
    }

    // `Self::` finds the mocked function of that name first.
    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        mocked(Self::commit(self, at, step)).await
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        mocked(Self::read(self, at)).await
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        mocked(Self::peek(self, at)).await
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        mocked(Self::setting(self, at)).await
    }

    async fn close(&self) {}
}
