//! The suites on a real PostgreSQL, each case with names of its own, and what is `postgres`'s own: its
//! refusals, its errors, its connections.
//!
//! `cargo xtask test-drivers --only postgres` starts a server and runs this with
//! `VVM_TEST_POSTGRES=postgres://…`; a server of your own will do. It creates databases named `vvm_test_…`
//! and leaves them there.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use async_trait::async_trait;
use ielections::{
    Claim, Entry, Epoch, Holder, Incarnation, ReadError, Slot, Swap, Ttl, TtlStorage, Vacant, Version,
    WriteError,
    testing::{contract::StorageUnderTest, elections_suite::ElectionsTestSuite},
};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use tokio_postgres::{Client, NoTls};
use vvm_storage::{
    ClusterName, ElectionKey, ElectionsTtlStorage, Partition, SlotNumber, SysVvmStorage, init_storage,
    postgres::{OpenError, PostgresStorage},
};

/// Where the server is. Without one these tests fail: what was asked for and can't be had is no success.
fn server() -> String {
    std::env::var("VVM_TEST_POSTGRES").expect(
        "VVM_TEST_POSTGRES=postgres://user@host/database says where a server is; `cargo xtask test-drivers \
         --only postgres` starts one",
    )
}

/// How long a request may take: as in `dynamodb.rs`. The suites use TTLs of all lengths.
const OPTIONS: &str = "request_timeout=20s&max_ttl=86400s";

fn url(database: &str) -> String {
    let server = server();
    let (place, _) = server.rsplit_once('/').unwrap();
    format!("{place}/{database}?{OPTIONS}")
}

/// Another program's connection.
async fn client(database: &str) -> Client {
    let url = url(database);
    let (client, connection) = tokio_postgres::connect(url.split_once('?').unwrap().0, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A name that no run before had.
fn fresh() -> String {
    let mut bytes = [0; 6];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").unwrap(), &mut bytes).unwrap();
    format!("vvm_test_{}", bytes.map(|byte| format!("{byte:02x}")).concat())
}

/// The database that the server's URL names.
fn first_database() -> String {
    server().rsplit_once('/').unwrap().1.to_owned()
}

/// A database that no run before had.
async fn fresh_database() -> String {
    let name = fresh();
    client(&first_database()).await.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    name
}

/// One database for all cases, and names in it for each.
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

async fn refused(url: &str) -> OpenError {
    PostgresStorage::open(url).await.expect_err("opened")
}

fn entry(epoch: u64, write: u64, ttl: Duration) -> Entry {
    Entry {
        holder: Holder::new("host").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([7; 16]), write },
        ttl: Ttl::new(ttl).unwrap(),
        epoch: Epoch::new(epoch).unwrap(),
    }
}

const TTL: Duration = Duration::from_secs(2);

/// A slot whose key begins as those of leader records do.
fn slot_of(name: &str) -> Partition {
    Partition::from_bytes([&[1], name.as_bytes()].concat())
}

const VACANT: Slot = Slot::Vacant(Vacant { last_epoch: None });

#[tokio::test(flavor = "multi_thread")]
async fn database_that_is_not_ready_is_refused_with_the_way_out() {
    let database = fresh_database().await;
    let error = refused(&url(&database)).await;
    assert!(matches!(&error, OpenError::NoSchema { .. }), "{error}");
    assert!(error.to_string().contains("vvm init-storage") && !error.is_passing(), "{error}");
    client(&database).await.batch_execute("CREATE SCHEMA sysvvm").await.unwrap();
    assert!(matches!(refused(&url(&database)).await, OpenError::OtherProgram));
    let error = init_storage(&url(&database)).await.unwrap_err().to_string();
    assert!(error.contains("another program"), "{error}");
    let comment = "COMMENT ON SCHEMA sysvvm IS 'vvm elections, format 2'";
    client(&database).await.batch_execute(comment).await.unwrap();
    let error = init_storage(&url(&database)).await.unwrap_err().to_string();
    assert!(error.contains("format 2") && error.contains("later version"), "{error}");
    let error = refused(&url("vvm_test_missing")).await;
    assert!(matches!(&error, OpenError::Login { .. }) && !error.is_passing(), "{error}");
    let error = refused("postgres://postgres@127.0.0.1:1/postgres").await;
    assert!(matches!(&error, OpenError::Unreachable { .. }) && error.is_passing(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_create_at_once_and_again() {
    let url = url(&fresh_database().await);
    let mut creators = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        creators.spawn(async move { init_storage(&url).await });
    }
    for created in creators.join_all().await {
        created.unwrap();
    }
    init_storage(&url).await.unwrap();
    assert!(PostgresStorage::open(&url).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn ttl_beyond_the_bound_is_refused_until_the_bound_is_raised() {
    let database = fresh_database().await;
    let plain = url(&database).replace("max_ttl=86400s", "request_timeout=20s");
    init_storage(&plain).await.unwrap();
    let storage = PostgresStorage::open(&plain).await.unwrap();
    let long = entry(1, 1, Duration::from_secs(30));
    let claim = storage.claim(slot_of("slot"), &VACANT, &long).await;
    let Err(WriteError::Fatal(cause)) = claim else { panic!("{claim:?}") };
    assert!(cause.to_string().contains("30s") && cause.to_string().contains("max_ttl"), "{cause}");
    init_storage(&url(&database)).await.unwrap();
    let again = PostgresStorage::open(&plain).await.unwrap();
    assert_eq!(again.claim(slot_of("slot"), &VACANT, &long).await.unwrap(), Claim::Claimed);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_that_another_transaction_locks_is_not_waited_for_longer_than_a_tenth_of_the_ttl() {
    let database = fresh_database().await;
    init_storage(&url(&database)).await.unwrap();
    let storage = PostgresStorage::open(&url(&database)).await.unwrap();
    let (at, held) = (slot_of("slot"), entry(1, 1, TTL));
    assert_eq!(storage.claim(at.clone(), &VACANT, &held).await.unwrap(), Claim::Claimed);
    let other = client(&database).await;
    other.batch_execute("BEGIN; SELECT FROM sysvvm.leader FOR UPDATE").await.unwrap();
    let renewed = entry(1, 2, TTL);
    let renewal = storage.renew(at.clone(), &held, &renewed).await;
    assert!(matches!(renewal, Err(WriteError::NotApplied(_))), "{renewal:?}");
    // A look waits for no lock.
    assert_eq!(storage.peek(std::slice::from_ref(&at)).await.unwrap()[0].entry(), Some(&held));
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(storage.renew(at, &held, &renewed).await.unwrap(), Swap::Swapped);
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_that_the_server_ended_is_replaced_without_an_error() {
    let database = fresh_database().await;
    init_storage(&url(&database)).await.unwrap();
    let storage = PostgresStorage::open(&url(&database)).await.unwrap();
    let (at, held) = (slot_of("slot"), entry(1, 1, TTL));
    assert_eq!(storage.claim(at.clone(), &VACANT, &held).await.unwrap(), Claim::Claimed);
    let other = client(&database).await;
    let others = "FROM pg_stat_activity WHERE application_name = 'vvm' AND datname = current_database()";
    other.batch_execute(&format!("SELECT pg_terminate_backend(pid) {others}")).await.unwrap();
    while !other.query(&format!("SELECT {others}"), &[]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(storage.renew(at, &held, &entry(1, 2, TTL)).await.unwrap(), Swap::Swapped);
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_whose_connection_is_ended_is_unknown() {
    let database = fresh_database().await;
    init_storage(&url(&database)).await.unwrap();
    let storage = Arc::new(PostgresStorage::open(&url(&database)).await.unwrap());
    let (at, held) = (slot_of("slot"), entry(1, 1, Duration::from_secs(600)));
    assert_eq!(storage.claim(at.clone(), &VACANT, &held).await.unwrap(), Claim::Claimed);
    let other = client(&database).await;
    other.batch_execute("BEGIN; SELECT FROM sysvvm.leader FOR UPDATE").await.unwrap();
    let renewal = tokio::spawn({
        let (storage, at, held) = (Arc::clone(&storage), at.clone(), held.clone());
        async move { storage.renew(at, &held, &entry(1, 2, Duration::from_secs(600))).await }
    });
    let waiting = "FROM pg_stat_activity WHERE application_name = 'vvm' AND wait_event_type = 'Lock' \
                   AND datname = current_database()";
    while other.query(&format!("SELECT pg_terminate_backend(pid) {waiting}"), &[]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let renewal = renewal.await.unwrap();
    assert!(matches!(renewal, Err(WriteError::Unknown(_))), "{renewal:?}");
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(storage.read(at).await.unwrap().entry(), Some(&held));
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_that_is_dropped_under_a_handle_is_replaced() {
    let database = fresh_database().await;
    init_storage(&url(&database)).await.unwrap();
    let storage = PostgresStorage::open(&url(&database)).await.unwrap();
    let (at, held) = (slot_of("slot"), entry(1, 1, TTL));
    assert_eq!(storage.claim(at.clone(), &VACANT, &held).await.unwrap(), Claim::Claimed);
    client(&database).await.batch_execute("DROP SCHEMA sysvvm CASCADE").await.unwrap();
    let renewal = storage.renew(at.clone(), &held, &entry(1, 2, TTL)).await;
    assert!(matches!(renewal, Err(WriteError::Replaced(_))), "{renewal:?}");
    // Created again it is empty, and another database.
    init_storage(&url(&database)).await.unwrap();
    let renewal = storage.renew(at, &held, &entry(1, 2, TTL)).await;
    assert!(matches!(renewal, Err(WriteError::Replaced(_))), "{renewal:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn login_that_may_only_read_can_look_but_not_claim() {
    let (database, login) = (fresh_database().await, fresh());
    init_storage(&url(&database)).await.unwrap();
    let owner = client(&database).await;
    let grants = format!(
        "CREATE ROLE {login} LOGIN; GRANT USAGE ON SCHEMA sysvvm TO {login}; \
         GRANT SELECT ON ALL TABLES IN SCHEMA sysvvm TO {login}"
    );
    owner.batch_execute(&grants).await.unwrap();
    let url = url(&database).replace("postgres@", &format!("{login}@"));
    let storage = PostgresStorage::open(&url).await.unwrap();
    assert_eq!(storage.peek(&[slot_of("slot")]).await.unwrap(), [VACANT]);
    let claim = storage.claim(slot_of("slot"), &VACANT, &entry(1, 1, TTL)).await;
    assert!(
        matches!(&claim, Err(WriteError::Fatal(cause)) if cause.to_string().contains("grants")),
        "{claim:?}"
    );
    owner.batch_execute(&format!("DROP OWNED BY {login}; DROP ROLE {login}")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn server_describes_version_durability_and_standbys() {
    let database = fresh_database().await;
    init_storage(&url(&database)).await.unwrap();
    let storage = PostgresStorage::open(&url(&database)).await.unwrap();
    let described = storage.describe().await.unwrap();
    println!("{described:#?}");
    assert!(described.software.as_deref().unwrap().starts_with("PostgreSQL 1"), "{described:?}");
    assert_eq!(described.setting("fsync"), Some("on"));
    assert_eq!(described.setting("largest TTL"), Some("86400000 ms"));
    assert!(described.setting("timeline").is_some() && described.setting("standbys").is_some());
    storage.close().await;
    assert!(matches!(storage.describe().await, Err(ReadError::Fatal(_))));
}
