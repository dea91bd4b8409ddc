//! The public suites, in one namespace.

use super::{fresh, url};
use async_trait::async_trait;
use ielections::{
    Ttl, TtlStorage,
    testing::{contract::StorageUnderTest, elections_suite::ElectionsTestSuite},
};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use vvm_storage::{
    ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, SysVvmStorage, testing::compare_steps,
};

/// One namespace for all cases. Each case has its own prefix of names, so cases share no record.
struct Kubernetes {
    names: String,
}

fn kubernetes() -> Kubernetes {
    Kubernetes { names: fresh() }
}

#[async_trait]
impl StorageUnderTest for Kubernetes {
    type Key = ElectionKey;

    async fn open(&self) -> Arc<dyn TtlStorage<ElectionKey>> {
        Arc::new(ElectionsTtlStorage::new(Arc::new(super::open(&url()).await)))
    }

    fn key(&self, name: &[u8]) -> ElectionKey {
        let cluster = ClusterName::new([self.names.as_bytes(), name].concat());
        ElectionKey { cluster, slot: SlotNumber::new(NonZeroU32::MIN) }
    }
}

impl ElectionsTestSuite for Kubernetes {
    fn ttl(&self) -> Ttl {
        // As in `dynamodb.rs`: the server shares the machine with the tests.
        Ttl::new(Duration::from_secs(6)).unwrap()
    }
}

mod contract {
    use super::kubernetes;
    ielections::storage_contract_suite!(kubernetes());
}

mod elections {
    use super::kubernetes;
    ielections::elections_test_suite!(kubernetes());
    ielections::fenced_elections_suite!(kubernetes());
}

mod documents {
    use super::kubernetes;
    ielections::document_contract_suite!(kubernetes());
}

#[tokio::test(flavor = "multi_thread")]
async fn random_steps_do_what_decide_says() {
    let Kubernetes { names } = kubernetes();
    let open = async || Arc::new(super::open(&url()).await) as Arc<dyn SysVvmStorage>;
    for seed in 0..5 {
        compare_steps(open, &format!("{names}-{seed}"), seed, 60).await;
    }
}
