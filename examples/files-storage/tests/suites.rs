//! The four suites, each in one line.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use async_trait::async_trait;
use files_storage::FilesStorage;
use ielections::{
    Ttl, TtlStorage, document_contract_suite, elections_test_suite, fenced_elections_suite,
    storage_contract_suite,
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
        // On the machine's clock: a loaded test machine may stand still for a third of it.
        Ttl::new(Duration::from_secs(4)).unwrap()
    }
}

mod contract {
    use super::*;
    storage_contract_suite!(Files(TempDir::new().unwrap()));
}

mod elections {
    use super::*;
    elections_test_suite!(Files(TempDir::new().unwrap()));
}

mod documents {
    use super::*;
    document_contract_suite!(Files(TempDir::new().unwrap()));
}

mod fenced_elections {
    use super::*;
    fenced_elections_suite!(Files(TempDir::new().unwrap()));
}
