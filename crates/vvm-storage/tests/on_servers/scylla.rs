mod documents;

use crate::{
    driver::{Driver, all_suites_on_a_server, described, fresh, is_the_storage_at},
    is_refused, refused, says,
};
use ::scylla::client::{session::Session, session_builder::SessionBuilder};
use ielections::WriteError;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use vvm_storage::{
    CurrentState, OpenErrorKind, Partition, Step, StepOutcome, SysVvmStorage, init_storage,
    scylla::{Levels, OpenOptions, ScyllaStorage},
};

all_suites_on_a_server!(driver().await);

fn contact_points() -> String {
    crate::server("VVM_TEST_SCYLLA", "host:port", "scylla")
}

/// As in `dynamodb.rs`. The time limits of the servers are their defaults.
const REQUEST_TIMEOUT: &str = "20s";

fn url(keyspace: &str, options: &str) -> String {
    format!("scylla://{}/{keyspace}?request_timeout={REQUEST_TIMEOUT}&{options}", contact_points())
}

async fn copies() -> usize {
    session().await.get_cluster_state().get_nodes_info().len().min(3)
}

async fn driver() -> Driver {
    let copies = copies().await;
    let url = url(&format!("vvm_test_suites_{copies}"), &format!("replication={copies}"));
    // Several servers and the tests share one machine.
    if copies > 1 { Driver::on_a_server(url).await } else { Driver::on_a_server(url).await.with_ttl(4) }
}

async fn session() -> Session {
    SessionBuilder::new().known_nodes(contact_points().split(',')).build().await.unwrap()
}

async fn datacenter() -> String {
    let state = session().await.get_cluster_state();
    state.get_nodes_info()[0].datacenter.clone().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_keyspace_replication_or_data_centre_is_named() {
    let keyspace = fresh("missing");
    let of = |options: &str| url(&keyspace, options);
    is_refused(&of(""), OpenErrorKind::Missing, &[&format!("there is no keyspace `{keyspace}`")]).await;
    says(&init_storage(&of("")).await.unwrap_err(), &["replication=3"]);
    let there = format!("there is no data centre `nowhere`; there are: {}", datacenter().await);
    says(&refused(&of("datacenter=nowhere")).await, &[&there]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_is_described_with_version_levels_and_concerns() {
    let keyspace = fresh("described");
    let url = url(&keyspace, "replication=1");
    let described = described(&url).await;
    let software = described.software.as_deref().unwrap();
    let (name, version) = software.rsplit_once(' ').unwrap();
    assert!(["Apache Cassandra", "ScyllaDB"].contains(&name), "{software}");
    assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{software}");
    assert_eq!(described.setting("serial level"), Some("SERIAL"));
    assert_eq!(described.setting("commit level"), Some("QUORUM"));
    assert_eq!(described.setting("copies"), Some(format!("{}: 1", datacenter().await).as_str()));
    let nodes = session().await.get_cluster_state().get_nodes_info().len();
    let found = described.setting("nodes").unwrap();
    assert!(found.starts_with(&format!("{nodes} (")), "{found}");
    assert!(described.concerns.iter().any(|concern| concern.contains("one copy")), "{described:?}");
    if name == "Apache Cassandra" {
        // Without logins, every client may read this setting.
        let is_periodic = described.setting("commitlog_sync") == Some("periodic");
        let is_concern = described.concerns.iter().any(|concern| concern.contains("power cut"));
        assert!(is_periodic == is_concern, "{described:?}");
        assert!(["periodic", "batch", "group"].contains(&described.setting("commitlog_sync").unwrap()));
    }
    let without_durable_writes = format!("ALTER KEYSPACE {keyspace} WITH durable_writes = false");
    session().await.query_unpaged(without_durable_writes, ()).await.unwrap();
    let again = ScyllaStorage::open(&url).await.unwrap().describe().await.unwrap();
    assert!(again.concerns.iter().any(|concern| concern.contains("durable_writes = true")), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn write_to_a_dropped_table_is_fatal_and_names_init_storage() {
    let keyspace = fresh("dropped");
    let url = url(&keyspace, "replication=1");
    init_storage(&url).await.unwrap();
    let storage = ScyllaStorage::open(&url).await.unwrap();
    session().await.query_unpaged(format!("DROP KEYSPACE {keyspace}"), ()).await.unwrap();
    let write = storage.commit(Partition::from_bytes(*b"setting"), Step::settle(b"value")).await;
    assert!(
        matches!(&write, Err(WriteError::Fatal(cause)) if cause.to_string().contains("`vvm init-storage` \
            creates")),
        "{write:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn session_of_the_caller_opens_the_same_records_and_stays_open() {
    let keyspace = fresh("own");
    let url = url(&keyspace, "replication=1");
    init_storage(&url).await.unwrap();
    let session = Arc::new(session().await);
    let options = OpenOptions { request_timeout: Duration::from_secs(20), ..OpenOptions::default() };
    let storage = ScyllaStorage::open_with(Arc::clone(&session), &keyspace, options.clone()).await.unwrap();
    is_the_storage_at(&url, Arc::new(storage)).await;
    session.query_unpaged("SELECT key FROM system.local", ()).await.unwrap();
    let local = OpenOptions { levels: Levels::Local(datacenter().await), ..options };
    let other = ScyllaStorage::open_with(Arc::clone(&session), &keyspace, local.clone()).await;
    says(&other.unwrap_err(), &["two levels do not see each other"]);
    let blind = SessionBuilder::new().known_nodes(contact_points().split(',')).fetch_schema_metadata(false);
    let blind = Arc::new(blind.build().await.unwrap());
    let global = OpenOptions { levels: Levels::Global, ..local };
    says(&ScyllaStorage::open_with(blind, &keyspace, global).await.unwrap_err(), &["keyspaces_to_fetch"]);
}

/// Runs on one thread, so that a task that has not ended is counted.
#[tokio::test]
async fn close_waits_for_the_end_of_every_task() {
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
async fn keyspace_of_another_serial_level_is_refused() {
    let (global, local) = (fresh("global"), fresh("local"));
    let datacenter = datacenter().await;
    let here = format!("serial=local&datacenter={datacenter}");
    init_storage(&url(&global, "replication=1")).await.unwrap();
    init_storage(&url(&local, &format!("replication=1&{here}"))).await.unwrap();
    for (keyspace, options) in [(&global, here.as_str()), (&local, "")] {
        let url = url(keyspace, options);
        says(&refused(&url).await, &["two levels do not see each other"]);
        assert!(init_storage(&url).await.is_err(), "{url}");
    }
    assert!(ScyllaStorage::open(&url(&local, &here)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn table_with_a_ttl_or_of_another_program_is_refused() {
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
        let says = ["can't be used for elections"];
        is_refused(&url(keyspace, ""), OpenErrorKind::Refused, &says).await;
    }
    says(&init_storage(&url(&foreign, "")).await.unwrap_err(), &["another keyspace"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_keyspace_can_be_created_again() {
    let keyspace = fresh("again");
    let url = url(&keyspace, "replication=1");
    for _ in 0..2 {
        init_storage(&url).await.unwrap();
        let storage = ScyllaStorage::open(&url).await.unwrap();
        let settled =
            storage.commit(Partition::from_bytes(*b"setting"), Step::settle(b"value")).await.unwrap();
        assert_eq!(settled, StepOutcome::Applied);
        storage.close().await;
        session().await.query_unpaged(format!("DROP KEYSPACE {keyspace}"), ()).await.unwrap();
    }
    is_refused(&url, OpenErrorKind::Missing, &["there is no keyspace"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_processes_can_create_one_keyspace_at_once() {
    let options = format!("replication={}", copies().await);
    for _ in 0..5 {
        let url = url(&fresh("many"), &options);
        let mut creators = tokio::task::JoinSet::new();
        for creator in 0..10_u8 {
            let url = url.clone();
            creators.spawn(async move {
                init_storage(&url).await.unwrap();
                // `init_storage` has waited until every node knows the table.
                let storage = ScyllaStorage::open(&url).await.unwrap();
                match storage.commit(Partition::from_bytes(*b"creator"), Step::settle(&[creator])).await {
                    Ok(StepOutcome::Refused(CurrentState::Setting(stands))) => Ok(stands),
                    settled => settled.map(|_| vec![creator]),
                }
            });
        }
        let mut values = BTreeSet::new();
        // Some of ten concurrent transactions on one row fail.
        values.extend(creators.join_all().await.into_iter().flatten());
        assert_eq!(values.len(), 1, "one table with one value: {values:?}");
        init_storage(&url).await.unwrap();
    }
}
