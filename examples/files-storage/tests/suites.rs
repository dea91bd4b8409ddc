//! The four suites, in one line.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use async_trait::async_trait;
use files_storage::FilesStorage;
use ielections::{
    Ttl, TtlStorage, all_suites,
    testing::{contract::StorageUnderTest, elections_suite::ElectionsTestSuite},
};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use tempfile::TempDir;
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, cells::Cells};

/// A folder of its own.
struct Files(TempDir);

#[async_trait]
impl StorageUnderTest for Files {
    type Key = ElectionKey;

    async fn open(&self) -> Arc<dyn TtlStorage<ElectionKey>> {
        let files = FilesStorage::open(&self.0.path().join("cells")).unwrap();
        Arc::new(ElectionsTtlStorage::new(Arc::new(Cells::new(files))))
    }

    fn key(&self, name: &[u8]) -> ElectionKey {
        ElectionKey { cluster: ClusterName::new(name), slot: SlotNumber::new(NonZeroU32::MIN) }
    }
}

impl ElectionsTestSuite for Files {
    fn ttl(&self) -> Ttl {
        Ttl::new(Duration::from_secs(4)).unwrap()
    }
}

all_suites!(Files(TempDir::new().unwrap()));
