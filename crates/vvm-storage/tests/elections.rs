//! The elections suite on the drivers of this build.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use ielections::Ttl;
use std::num::NonZeroU32;
#[cfg(any(feature = "sqlite", feature = "sled"))]
use std::time::Duration;
use vvm_storage::{ClusterName, ElectionKey, SlotNumber};

fn key(name: &[u8]) -> ElectionKey {
    ElectionKey { cluster: ClusterName::new(name), slot: SlotNumber::new(NonZeroU32::MIN) }
}

/// The TTL on the real clock. The test machine may stop for a third of it, as loaded machines do.
#[cfg(any(feature = "sqlite", feature = "sled"))]
const REAL_TTL: Ttl = match Ttl::new(Duration::from_secs(2)) {
    Ok(ttl) => ttl,
    Err(_) => panic!("two seconds are a TTL"),
};

#[cfg(feature = "mem")]
mod mem {
    use super::*;
    use async_trait::async_trait;
    use ielections::{
        TtlStorage, elections_test_suite, fenced_elections_suite,
        testing::{contract::StorageUnderTest, elections_suite::ElectionsTestSuite},
    };
    use std::sync::Arc;
    use testing_time::MockClock;
    use vvm_storage::{ElectionsTtlStorage, mem::MemDatabase};

    struct Mem {
        database: Arc<MemDatabase>,
        clock: MockClock,
    }

    impl Mem {
        fn fresh() -> Self {
            let clock = MockClock::new();
            Self { database: MemDatabase::new(Arc::new(clock.clone())), clock }
        }
    }

    #[async_trait]
    impl StorageUnderTest for Mem {
        type Key = ElectionKey;

        async fn open(&self) -> Arc<dyn TtlStorage<ElectionKey>> {
            Arc::new(ElectionsTtlStorage::new(self.database.open()))
        }

        fn key(&self, name: &[u8]) -> ElectionKey {
            key(name)
        }
    }

    impl ElectionsTestSuite for Mem {
        fn ttl(&self) -> Ttl {
            Ttl::DEFAULT
        }

        fn mock_clock(&self) -> Option<MockClock> {
            Some(self.clock.clone())
        }
    }

    elections_test_suite!(Mem::fresh());
    fenced_elections_suite!(Mem::fresh());
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use async_trait::async_trait;
    use ielections::{
        TtlStorage, elections_test_suite, fenced_elections_suite,
        testing::{contract::StorageUnderTest, elections_suite::ElectionsTestSuite},
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

    impl ElectionsTestSuite for Sqlite {
        fn ttl(&self) -> Ttl {
            REAL_TTL
        }
    }

    elections_test_suite!(Sqlite(TempDir::new().unwrap()));
    fenced_elections_suite!(Sqlite(TempDir::new().unwrap()));
}

#[cfg(feature = "sled")]
mod sled {
    use super::*;
    use async_trait::async_trait;
    use ielections::{
        TtlStorage, elections_test_suite, fenced_elections_suite,
        testing::{contract::StorageUnderTest, elections_suite::ElectionsTestSuite},
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

    impl ElectionsTestSuite for Sled {
        fn ttl(&self) -> Ttl {
            REAL_TTL
        }
    }

    elections_test_suite!(Sled(TempDir::new().unwrap()));
    fenced_elections_suite!(Sled(TempDir::new().unwrap()));
}
