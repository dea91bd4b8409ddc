//! The public suites, on one database.

use super::{first_database, fresh, url};
use async_trait::async_trait;
use ielections::{
    Ttl, TtlStorage,
    testing::{contract::StorageUnderTest, elections_suite::ElectionsTestSuite},
};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use vvm_storage::{
    ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, SysVvmStorage, init_storage,
    postgres::PostgresStorage, testing::compare_steps,
};

/// One database for all cases. Each case has its own prefix of names, so cases share no record.
struct Postgres {
    url: String,
    names: String,
}

impl Postgres {
    async fn fresh() -> Self {
        let url = url(&first_database());
        init_storage(&url).await.unwrap();
        Self { url, names: fresh() }
    }
}

#[async_trait]
impl StorageUnderTest for Postgres {
    type Key = ElectionKey;

    async fn open(&self) -> Arc<dyn TtlStorage<ElectionKey>> {
        Arc::new(ElectionsTtlStorage::new(Arc::new(PostgresStorage::open(&self.url).await.unwrap())))
    }

    fn key(&self, name: &[u8]) -> ElectionKey {
        let cluster = ClusterName::new([self.names.as_bytes(), name].concat());
        ElectionKey { cluster, slot: SlotNumber::new(NonZeroU32::MIN) }
    }
}

impl ElectionsTestSuite for Postgres {
    fn ttl(&self) -> Ttl {
        // As in `dynamodb.rs`: the server shares the machine with the tests.
        Ttl::new(Duration::from_secs(6)).unwrap()
    }
}

mod contract {
    use super::Postgres;
    ielections::storage_contract_suite!(Postgres::fresh().await);
}

mod elections {
    use super::Postgres;
    ielections::elections_test_suite!(Postgres::fresh().await);
    ielections::fenced_elections_suite!(Postgres::fresh().await);
}

mod documents {
    use super::Postgres;
    ielections::document_contract_suite!(Postgres::fresh().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn random_steps_do_what_decide_says() {
    let Postgres { url, names } = Postgres::fresh().await;
    let open = async || Arc::new(PostgresStorage::open(&url).await.unwrap()) as Arc<dyn SysVvmStorage>;
    for seed in 0..5 {
        compare_steps(open, &format!("{names}-{seed}"), seed, 60).await;
    }
}
