//! The storage contract suite on every driver of this build, through `ElectionsTtlStorage` as elections use it.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

#[cfg(feature = "mem")]
mod mem {
    use async_trait::async_trait;
    use clock::SystemClock;
    use ielections::{TtlStorage, storage_contract_suite, testing::contract::StorageUnderTest};
    use std::{num::NonZeroU32, sync::Arc};
    use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, mem::MemDatabase};

    struct Mem(Arc<MemDatabase>);

    #[async_trait]
    impl StorageUnderTest for Mem {
        type Key = ElectionKey;

        async fn open(&self) -> Arc<dyn TtlStorage<ElectionKey>> {
            Arc::new(ElectionsTtlStorage::new(self.0.open()))
        }

        fn key(&self, name: &[u8]) -> ElectionKey {
            ElectionKey { cluster: ClusterName::new(name), slot: SlotNumber::new(NonZeroU32::MIN) }
        }
    }

    storage_contract_suite!(Mem(MemDatabase::new(Arc::new(SystemClock::start().unwrap()))));
}
