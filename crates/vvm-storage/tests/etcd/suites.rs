//! The public suites, below one prefix.

use super::{fresh, url};
use async_trait::async_trait;
use ielections::{
    Ttl, TtlStorage,
    testing::{contract::StorageUnderTest, elections_suite::ElectionsTestSuite},
};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use vvm_storage::{
    ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, SysVvmStorage, etcd::EtcdStorage,
    init_storage, testing::compare_steps,
};

/// One prefix for all cases. Each case has its own prefix of names, so cases share no record.
struct Etcd {
    url: String,
    names: String,
}

impl Etcd {
    async fn fresh() -> Self {
        let url = url("vvm_test_suites");
        init_storage(&url).await.unwrap();
        Self { url, names: fresh() }
    }
}

#[async_trait]
impl StorageUnderTest for Etcd {
    type Key = ElectionKey;

    async fn open(&self) -> Arc<dyn TtlStorage<ElectionKey>> {
        Arc::new(ElectionsTtlStorage::new(Arc::new(EtcdStorage::open(&self.url).await.unwrap())))
    }

    fn key(&self, name: &[u8]) -> ElectionKey {
        let cluster = ClusterName::new([self.names.as_bytes(), name].concat());
        ElectionKey { cluster, slot: SlotNumber::new(NonZeroU32::MIN) }
    }
}

impl ElectionsTestSuite for Etcd {
    fn ttl(&self) -> Ttl {
        // As in `dynamodb.rs`: the servers share the machine with the tests.
        Ttl::new(Duration::from_secs(6)).unwrap()
    }
}

mod contract {
    use super::Etcd;
    ielections::storage_contract_suite!(Etcd::fresh().await);
}

mod elections {
    use super::Etcd;
    ielections::elections_test_suite!(Etcd::fresh().await);
    ielections::fenced_elections_suite!(Etcd::fresh().await);
}

mod documents {
    use super::Etcd;
    ielections::document_contract_suite!(Etcd::fresh().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn random_steps_do_what_decide_says() {
    let Etcd { url, names } = Etcd::fresh().await;
    let open = async || Arc::new(EtcdStorage::open(&url).await.unwrap()) as Arc<dyn SysVvmStorage>;
    for seed in 0..5 {
        compare_steps(open, &format!("{names}-{seed}"), seed, 60).await;
    }
}
