//! The storage contract suite on every driver of this build, through `ElectionsTtlStorage`.
#![cfg(any(feature = "mem", feature = "sqlite", feature = "sled"))]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use std::num::NonZeroU32;
use vvm_storage::{ClusterName, ElectionKey, SlotNumber};

fn key(name: &[u8]) -> ElectionKey {
    ElectionKey { cluster: ClusterName::new(name), slot: SlotNumber::new(NonZeroU32::MIN) }
}

#[cfg(feature = "mem")]
mod mem {
    use super::*;
    use async_trait::async_trait;
    use ielections::{
        TtlStorage, document_contract_suite, storage_contract_suite, testing::contract::StorageUnderTest,
    };
    use std::sync::Arc;
    use vvm_clock::SystemClock;
    use vvm_storage::{ElectionsTtlStorage, mem::MemDatabase};

    struct Mem(Arc<MemDatabase>);

    #[async_trait]
    impl StorageUnderTest for Mem {
        type Key = ElectionKey;

        async fn open(&self) -> Arc<dyn TtlStorage<ElectionKey>> {
            Arc::new(ElectionsTtlStorage::new(self.0.open()))
        }

        fn key(&self, name: &[u8]) -> ElectionKey {
            key(name)
        }
    }

    fn fresh() -> Mem {
        Mem(MemDatabase::new(Arc::new(SystemClock::start().unwrap())))
    }

    storage_contract_suite!(fresh());

    mod documents {
        use super::*;
        document_contract_suite!(fresh());
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use async_trait::async_trait;
    use ielections::{
        TtlStorage, document_contract_suite, storage_contract_suite, testing::contract::StorageUnderTest,
    };
    use std::sync::Arc;
    use tempfile::TempDir;
    use vvm_storage::{ElectionsTtlStorage, sqlite::SqliteStorage};

    /// A separate file. Each handle has its own connection.
    struct Sqlite(TempDir);

    #[async_trait]
    impl StorageUnderTest for Sqlite {
        type Key = ElectionKey;

        async fn open(&self) -> Arc<dyn TtlStorage<ElectionKey>> {
            let storage = SqliteStorage::open(
                &self.0.path().join("elections.db"),
                vvm_storage::sqlite::OpenOptions::new().allow_overlay(),
            )
            .await
            .unwrap();
            Arc::new(ElectionsTtlStorage::new(Arc::new(storage)))
        }

        fn key(&self, name: &[u8]) -> ElectionKey {
            key(name)
        }
    }

    storage_contract_suite!(Sqlite(TempDir::new().unwrap()));

    mod documents {
        use super::*;
        document_contract_suite!(Sqlite(TempDir::new().unwrap()));
    }
}

#[cfg(feature = "sled")]
mod sled {
    use super::*;
    use async_trait::async_trait;
    use ielections::{
        TtlStorage, document_contract_suite, storage_contract_suite, testing::contract::StorageUnderTest,
    };
    use std::sync::Arc;
    use tempfile::TempDir;
    use vvm_storage::{ElectionsTtlStorage, sled::SledStorage};

    /// A separate folder. Its handles share one database, because a process can open it only once.
    struct Sled(TempDir);

    #[async_trait]
    impl StorageUnderTest for Sled {
        type Key = ElectionKey;

        async fn open(&self) -> Arc<dyn TtlStorage<ElectionKey>> {
            let storage = SledStorage::open(self.0.path()).await.unwrap();
            Arc::new(ElectionsTtlStorage::new(Arc::new(storage)))
        }

        fn key(&self, name: &[u8]) -> ElectionKey {
            key(name)
        }
    }

    storage_contract_suite!(Sled(TempDir::new().unwrap()));

    mod documents {
        use super::*;
        document_contract_suite!(Sled(TempDir::new().unwrap()));
    }
}
