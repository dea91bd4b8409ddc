//! The suites on a real cluster, each case with names of its own, and what is `scylla`'s own: its messages.
//!
//! `cargo xtask test-drivers` starts a server and runs this with `VVM_TEST_SCYLLA=host:port`; a cluster of
//! your own will do. It creates keyspaces named `vvm_test_…` and leaves them there.
#![cfg(feature = "scylla")]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use ::scylla::client::{session::Session, session_builder::SessionBuilder};
use async_trait::async_trait;
use ielections::{
    ReadError, Ttl, TtlStorage, WriteError,
    testing::{contract::StorageUnderTest, elections_suite::ElectionsTestSuite},
};
use std::{collections::BTreeSet, num::NonZeroU32, sync::Arc, time::Duration};
use vvm_storage::{
    ClusterName, ElectionKey, ElectionsTtlStorage, Partition, SlotNumber, SysVvmStorage, init_storage,
    scylla::{OpenError, ScyllaStorage},
};

/// Where the cluster is: one node of it, or several with commas in between. Without one these tests fail:
/// what was asked for and can't be had is no success.
fn contact_points() -> String {
    std::env::var("VVM_TEST_SCYLLA").expect(
        "VVM_TEST_SCYLLA=host:port says where a cluster is; `cargo xtask test-drivers --only scylla` starts \
         one",
    )
}

/// How long a request may take: as in `dynamodb.rs`. The servers' own times are their defaults.
const PATIENCE: &str = "20s";

fn url(keyspace: &str, options: &str) -> String {
    format!("scylla://{}/{keyspace}?request_timeout={PATIENCE}&{options}", contact_points())
}

/// A name that no run before had.
fn fresh(name: &str) -> String {
    let mut bytes = [0; 6];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").unwrap(), &mut bytes).unwrap();
    format!("vvm_test_{name}_{}", bytes.map(|byte| format!("{byte:02x}")).concat())
}

/// As many copies as there are nodes, and three where there are more.
async fn copies() -> usize {
    session().await.get_cluster_state().get_nodes_info().len().min(3)
}

/// One keyspace for all cases, and names in it for each.
struct Scylla {
    url: String,
    names: String,
}

impl Scylla {
    async fn fresh() -> Self {
        let copies = copies().await;
        let url = url(&format!("vvm_test_suites_{copies}"), &format!("replication={copies}"));
        init_storage(&url).await.unwrap();
        Self { url, names: fresh("case") }
    }
}

#[async_trait]
impl StorageUnderTest for Scylla {
    type Key = ElectionKey;

    async fn open(&self) -> Arc<dyn TtlStorage<ElectionKey>> {
        Arc::new(ElectionsTtlStorage::new(Arc::new(ScyllaStorage::open(&self.url).await.unwrap())))
    }

    fn key(&self, name: &[u8]) -> ElectionKey {
        let cluster = ClusterName::new([self.names.as_bytes(), name].concat());
        ElectionKey { cluster, slot: SlotNumber::new(NonZeroU32::MIN) }
    }
}

impl ElectionsTestSuite for Scylla {
    fn ttl(&self) -> Ttl {
        // Servers share the machine with the tests, and all may stand still for a third of it.
        let seconds = if contact_points().contains(',') { 6 } else { 4 };
        Ttl::new(Duration::from_secs(seconds)).unwrap()
    }
}

mod contract {
    use super::Scylla;
    ielections::storage_contract_suite!(Scylla::fresh().await);
}

mod elections {
    use super::Scylla;
    ielections::elections_test_suite!(Scylla::fresh().await);
    ielections::fenced_elections_suite!(Scylla::fresh().await);
}

mod documents {
    use super::Scylla;
    ielections::document_contract_suite!(Scylla::fresh().await);
}

/// Another client's connection.
async fn session() -> Session {
    SessionBuilder::new().known_nodes(contact_points().split(',')).build().await.unwrap()
}

/// Some data centre that there is.
async fn datacenter() -> String {
    let state = session().await.get_cluster_state();
    state.get_nodes_info()[0].datacenter.clone().unwrap()
}

async fn refused(url: &str) -> OpenError {
    ScyllaStorage::open(url).await.expect_err("opened")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_said() {
    let keyspace = fresh("missing");
    let of = |options: &str| url(&keyspace, options);
    assert!(matches!(refused(&of("")).await, OpenError::NoKeyspace(name) if name == keyspace));
    let error = init_storage(&of("")).await.unwrap_err().to_string();
    assert!(error.contains("replication=3"), "{error}");
    let error = init_storage(&of("replication=nowhere:3")).await.unwrap_err();
    assert!(error.to_string().contains("the cluster refuses") && !error.is_passing(), "{error}");
    let error = refused(&of("datacenter=nowhere")).await;
    assert!(matches!(&error, OpenError::NoDatacenter { there, .. } if !there.is_empty()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_tells_version_levels_and_what_a_power_cut_would_do() {
    let keyspace = fresh("described");
    let url = url(&keyspace, "replication=1");
    init_storage(&url).await.unwrap();
    let storage = ScyllaStorage::open(&url).await.unwrap();
    let described = storage.describe().await.unwrap();
    println!("{described:#?}");
    let software = described.software.as_deref().unwrap();
    let (name, version) = software.rsplit_once(' ').unwrap();
    assert!(["Apache Cassandra", "ScyllaDB"].contains(&name), "{software}");
    assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{software}");
    assert_eq!(described.setting("serial level"), Some("SERIAL"));
    assert_eq!(described.setting("commit level"), Some("QUORUM"));
    assert_eq!(described.setting("copies"), Some(format!("{}: 1", datacenter().await).as_str()));
    let nodes = session().await.get_cluster_state().get_nodes_info().len();
    let told = described.setting("nodes").unwrap();
    assert!(told.starts_with(&format!("{nodes} (")), "{told}");
    assert!(described.concerns.iter().any(|concern| concern.contains("one copy")), "{described:?}");
    if name == "Apache Cassandra" {
        // Every client has this right if no client has to log in.
        let is_periodic = described.setting("commitlog_sync") == Some("periodic");
        let is_concern = described.concerns.iter().any(|concern| concern.contains("power cut"));
        assert!(is_periodic == is_concern, "{described:?}");
        assert!(["periodic", "batch", "group"].contains(&described.setting("commitlog_sync").unwrap()));
    }
    let forgetful = format!("ALTER KEYSPACE {keyspace} WITH durable_writes = false");
    session().await.query_unpaged(forgetful, ()).await.unwrap();
    let again = ScyllaStorage::open(&url).await.unwrap().describe().await.unwrap();
    assert!(again.concerns.iter().any(|concern| concern.contains("durable_writes = true")), "{again:?}");
    storage.close().await;
    assert!(matches!(storage.describe().await, Err(ReadError::Fatal(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_dropped_under_a_handle_is_said() {
    let keyspace = fresh("dropped");
    let url = url(&keyspace, "replication=1");
    init_storage(&url).await.unwrap();
    let storage = ScyllaStorage::open(&url).await.unwrap();
    session().await.query_unpaged(format!("DROP KEYSPACE {keyspace}"), ()).await.unwrap();
    let write = storage.settle(Partition::from_bytes(*b"setting"), b"value").await;
    assert!(
        matches!(&write, Err(WriteError::Fatal(cause)) if cause.to_string().contains("`vvm init-storage` \
            creates")),
        "{write:?}"
    );
}

/// On a runtime of one thread, so that whatever is not ended yet is seen to be there.
#[tokio::test]
async fn closing_waits_for_the_end_of_every_task() {
    let url = url(&fresh("closing"), "replication=1");
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    init_storage(&url).await.unwrap();
    assert_eq!(tasks(), before, "after creating");
    let storage = ScyllaStorage::open(&url).await.unwrap();
    assert!(tasks() > before);
    storage.close().await;
    assert_eq!(tasks(), before, "after closing");
    refused(&url.replace("closing", "missing")).await;
    assert_eq!(tasks(), before, "after a refusal");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_does_not_answer_is_named() {
    // No program listens on port 1 of this machine.
    let error = refused("scylla://127.0.0.1:1/elections").await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyspace_is_written_at_one_level_only() {
    let (global, local) = (fresh("global"), fresh("local"));
    let datacenter = datacenter().await;
    let here = format!("serial=local&datacenter={datacenter}");
    init_storage(&url(&global, "replication=1")).await.unwrap();
    init_storage(&url(&local, &format!("replication={datacenter}:1&{here}"))).await.unwrap();
    for (keyspace, options) in [(&global, here.as_str()), (&local, "")] {
        let url = url(keyspace, options);
        assert!(matches!(refused(&url).await, OpenError::OtherLevel { .. }), "{url}");
        assert!(init_storage(&url).await.is_err(), "{url}");
    }
    assert!(ScyllaStorage::open(&url(&local, &here)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_would_end_records_or_is_not_ours_is_refused() {
    let session = session().await;
    let (foreign, altered) = (fresh("foreign"), fresh("altered"));
    init_storage(&url(&altered, "replication=1")).await.unwrap();
    let replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}";
    for statement in [
        format!("CREATE KEYSPACE {foreign} WITH replication = {replication}"),
        format!("CREATE TABLE {foreign}.sysvvm (pk blob PRIMARY KEY, value blob)"),
        format!("ALTER TABLE {altered}.sysvvm WITH default_time_to_live = 60"),
    ] {
        session.query_unpaged(statement, ()).await.unwrap();
    }
    for keyspace in [&foreign, &altered] {
        let error = refused(&url(keyspace, "")).await;
        assert!(matches!(error, OpenError::OtherTable { .. }), "{error}");
    }
    assert!(
        matches!(init_storage(&url(&foreign, "")).await, Err(error) if error.to_string().contains("another \
            keyspace"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyspace_that_was_dropped_can_be_created_again() {
    let keyspace = fresh("again");
    let url = url(&keyspace, "replication=1");
    for _ in 0..2 {
        init_storage(&url).await.unwrap();
        let storage = ScyllaStorage::open(&url).await.unwrap();
        let stands = storage.settle(Partition::from_bytes(*b"setting"), b"value").await.unwrap();
        assert_eq!(stands, b"value");
        storage.close().await;
        session().await.query_unpaged(format!("DROP KEYSPACE {keyspace}"), ()).await.unwrap();
    }
    assert!(matches!(refused(&url).await, OpenError::NoKeyspace(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_create_at_once_and_again() {
    let options = format!("replication={}", copies().await);
    for _ in 0..5 {
        let url = url(&fresh("many"), &options);
        let mut creators = tokio::task::JoinSet::new();
        for creator in 0..10_u8 {
            let url = url.clone();
            creators.spawn(async move {
                init_storage(&url).await.unwrap();
                // Whichever node is asked has it now.
                let storage = ScyllaStorage::open(&url).await.unwrap();
                storage.settle(Partition::from_bytes(*b"creator"), &[creator]).await
            });
        }
        let mut stand = BTreeSet::new();
        for settled in creators.join_all().await {
            // Ten at once are in each other's way.
            if let Ok(stands) = settled {
                stand.insert(stands);
            }
        }
        assert_eq!(stand.len(), 1, "one table, and one value in it: {stand:?}");
        init_storage(&url).await.unwrap();
    }
}
