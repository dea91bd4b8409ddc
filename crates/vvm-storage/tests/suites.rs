//! The public suites on the drivers of this build, through `ElectionsTtlStorage`: the contracts of storages
//! and of documents, and elections.
#![cfg(any(feature = "mem", feature = "sqlite", feature = "sled"))]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use async_trait::async_trait;
use ielections::{
    Ttl, TtlStorage, document_contract_suite, elections_test_suite, fenced_elections_suite,
    storage_contract_suite,
    testing::{contract::StorageUnderTest, elections_suite::ElectionsTestSuite},
};
use std::{num::NonZeroU32, sync::Arc};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, SysVvmStorage};

/// Opens a handle on the database of a driver.
#[async_trait]
trait Driver: Send + Sync + 'static {
    /// The TTL on the real clock. The test machine may stop for a third of it, as loaded machines do.
    const TTL: Ttl = match Ttl::new(std::time::Duration::from_secs(2)) {
        Ok(ttl) => ttl,
        Err(_) => panic!("two seconds are a TTL"),
    };

    async fn handle(&self) -> Arc<dyn SysVvmStorage>;

    fn mock_clock(&self) -> Option<testing_time::MockClock> {
        None
    }
}

struct Tested<D>(D);

#[async_trait]
impl<D: Driver> StorageUnderTest for Tested<D> {
    type Key = ElectionKey;

    async fn open(&self) -> Arc<dyn TtlStorage<ElectionKey>> {
        Arc::new(ElectionsTtlStorage::new(self.0.handle().await))
    }

    fn key(&self, name: &[u8]) -> ElectionKey {
        ElectionKey { cluster: ClusterName::new(name), slot: SlotNumber::new(NonZeroU32::MIN) }
    }
}

impl<D: Driver> ElectionsTestSuite for Tested<D> {
    fn ttl(&self) -> Ttl {
        D::TTL
    }

    fn mock_clock(&self) -> Option<testing_time::MockClock> {
        self.0.mock_clock()
    }
}

macro_rules! suites {
    ($contracts:expr, $elections:expr) => {
        mod contract {
            use super::*;
            storage_contract_suite!(Tested($contracts));
        }

        mod documents {
            use super::*;
            document_contract_suite!(Tested($contracts));
        }

        mod elections {
            use super::*;
            elections_test_suite!(Tested($elections));
            fenced_elections_suite!(Tested($elections));
        }
    };
}

#[cfg(feature = "mem")]
mod mem {
    use super::*;
    use testing_time::MockClock;
    use vvm_clock::SystemClock;
    use vvm_storage::mem::MemDatabase;

    struct Mem(Arc<MemDatabase>, Option<MockClock>);

    #[async_trait]
    impl Driver for Mem {
        const TTL: Ttl = Ttl::DEFAULT;

        async fn handle(&self) -> Arc<dyn SysVvmStorage> {
            self.0.open()
        }

        fn mock_clock(&self) -> Option<MockClock> {
            self.1.clone()
        }
    }

    fn in_real_time() -> Mem {
        Mem(MemDatabase::new(Arc::new(SystemClock::start().unwrap())), None)
    }

    fn in_mock_time() -> Mem {
        let clock = MockClock::new();
        Mem(MemDatabase::new(Arc::new(clock.clone())), Some(clock))
    }

    suites!(in_real_time(), in_mock_time());
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use tempfile::TempDir;
    use vvm_storage::sqlite::{OpenOptions, SqliteStorage};

    /// A file of its own. Each handle has its own connection to it.
    struct Sqlite(TempDir);

    #[async_trait]
    impl Driver for Sqlite {
        async fn handle(&self) -> Arc<dyn SysVvmStorage> {
            let path = self.0.path().join("elections.db");
            Arc::new(SqliteStorage::open(&path, OpenOptions::new().allow_overlay()).await.unwrap())
        }
    }

    suites!(Sqlite(TempDir::new().unwrap()), Sqlite(TempDir::new().unwrap()));
}

#[cfg(feature = "sled")]
mod sled {
    use super::*;
    use tempfile::TempDir;
    use vvm_storage::sled::SledStorage;

    /// A folder of its own. Its handles share the one database that a process can have open.
    struct Sled(TempDir);

    #[async_trait]
    impl Driver for Sled {
        async fn handle(&self) -> Arc<dyn SysVvmStorage> {
            Arc::new(SledStorage::open(self.0.path()).await.unwrap())
        }
    }

    suites!(Sled(TempDir::new().unwrap()), Sled(TempDir::new().unwrap()));
}
