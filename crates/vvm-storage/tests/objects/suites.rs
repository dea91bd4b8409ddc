//! The public suites, below one prefix.

use super::{fresh, opened, url};
use async_trait::async_trait;
use ielections::{
    Ttl, TtlStorage,
    testing::{contract::StorageUnderTest, elections_suite::ElectionsTestSuite},
};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use tokio::sync::OnceCell;
use vvm_storage::{
    ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, SysVvmStorage, init_storage,
    testing::compare_steps,
};

/// Races the server once for all cases.
static READY: OnceCell<()> = OnceCell::const_new();

/// Each case has its own prefix of names, so cases share no object.
struct Objects {
    names: String,
}

impl Objects {
    async fn fresh() -> Self {
        READY.get_or_init(async || init_storage(&url("suites")).await.unwrap()).await;
        Self { names: fresh() }
    }
}

#[async_trait]
impl StorageUnderTest for Objects {
    type Key = ElectionKey;

    async fn open(&self) -> Arc<dyn TtlStorage<ElectionKey>> {
        Arc::new(ElectionsTtlStorage::new(Arc::new(opened(&url("suites")).await)))
    }

    fn key(&self, name: &[u8]) -> ElectionKey {
        let cluster = ClusterName::new([self.names.as_bytes(), name].concat());
        ElectionKey { cluster, slot: SlotNumber::new(NonZeroU32::MIN) }
    }
}

impl ElectionsTestSuite for Objects {
    fn ttl(&self) -> Ttl {
        // As in `dynamodb.rs`: the server shares the machine with the tests.
        Ttl::new(Duration::from_secs(6)).unwrap()
    }
}

mod contract {
    use super::Objects;
    ielections::storage_contract_suite!(Objects::fresh().await);
}

mod elections {
    use super::Objects;
    ielections::elections_test_suite!(Objects::fresh().await);
    ielections::fenced_elections_suite!(Objects::fresh().await);
}

mod documents {
    use super::Objects;
    ielections::document_contract_suite!(Objects::fresh().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn random_steps_do_what_decide_says() {
    let Objects { names } = Objects::fresh().await;
    let open = async || Arc::new(opened(&url("suites")).await) as Arc<dyn SysVvmStorage>;
    for seed in 0..5 {
        compare_steps(open, &format!("{names}-{seed}"), seed, 60).await;
    }
}
