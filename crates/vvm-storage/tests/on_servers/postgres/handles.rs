//! What a handle refuses, how errors are classified, and what becomes of its connections.

use super::{client, fresh_database, url};
use crate::{
    driver::{TTL, VACANT, entry, fresh, many_create, slot_of},
    refused,
};
use ielections::{Entry, Fence, ReadError, WriteError, documents::DocumentVersion};
use std::{sync::Arc, time::Duration};
use vvm_storage::{
    Done, OpenErrorKind, Partition, Step, SysVvmStorage, init_storage, postgres::PostgresStorage,
};

/// A database, with the storage ready, and a handle.
async fn opened() -> (String, PostgresStorage) {
    let database = fresh_database().await;
    init_storage(&url(&database)).await.unwrap();
    let storage = PostgresStorage::open(&url(&database)).await.unwrap();
    (database, storage)
}

/// Claims a slot.
async fn led(storage: &PostgresStorage, ttl: Duration) -> (Partition, Entry) {
    let (at, held) = (slot_of("slot"), entry(1, 1, ttl));
    assert_eq!(storage.commit(at.clone(), Step::claim(&VACANT, &held)).await.unwrap(), Done::Applied);
    (at, held)
}

#[tokio::test(flavor = "multi_thread")]
async fn database_that_is_not_ready_is_refused_with_the_way_out() {
    let database = fresh_database().await;
    let error = refused(&url(&database)).await;
    assert!(error.to_string().contains("vvm init-storage"), "{error}");
    assert_eq!(error.kind(), OpenErrorKind::Missing, "{error}");
    client(&database).await.batch_execute("CREATE SCHEMA sysvvm").await.unwrap();
    let error = refused(&url(&database)).await.to_string();
    assert!(error.contains("another program"), "{error}");
    let error = init_storage(&url(&database)).await.unwrap_err().to_string();
    assert!(error.contains("another program"), "{error}");
    let comment = "COMMENT ON SCHEMA sysvvm IS 'vvm elections, format 2'";
    client(&database).await.batch_execute(comment).await.unwrap();
    let error = init_storage(&url(&database)).await.unwrap_err().to_string();
    assert!(error.contains("format 2") && error.contains("later version"), "{error}");
    let error = refused(&url("vvm_test_missing")).await;
    assert!(error.to_string().contains("CREATE DATABASE") && !error.is_passing(), "{error}");
    let error = refused("postgres://postgres@127.0.0.1:1/postgres").await;
    assert!(error.to_string().contains("no PostgreSQL answers at") && error.is_passing(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_create_at_once_and_again() {
    many_create(&url(&fresh_database().await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ttl_beyond_the_bound_is_refused_until_the_bound_is_raised() {
    let database = fresh_database().await;
    let plain = url(&database).replace("max_ttl=86400s", "request_timeout=20s");
    init_storage(&plain).await.unwrap();
    let storage = PostgresStorage::open(&plain).await.unwrap();
    let long = entry(1, 1, Duration::from_secs(30));
    let claim = storage.commit(slot_of("slot"), Step::claim(&VACANT, &long)).await;
    let Err(WriteError::Fatal(cause)) = claim else { panic!("{claim:?}") };
    assert!(cause.to_string().contains("30s") && cause.to_string().contains("max_ttl=30s"), "{cause}");
    init_storage(&url(&database)).await.unwrap();
    let again = PostgresStorage::open(&plain).await.unwrap();
    assert_eq!(again.commit(slot_of("slot"), Step::claim(&VACANT, &long)).await.unwrap(), Done::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_by_a_clock_far_from_the_servers_is_refused_with_the_difference() {
    let database = fresh_database().await;
    init_storage(&url(&database)).await.unwrap();
    let server = client(&database).await;
    // The server's clock, for new connections to this database.
    let faked = format!("CREATE SCHEMA faked; ALTER DATABASE {database} SET search_path = faked, pg_catalog");
    server.batch_execute(&faked).await.unwrap();
    let set = async |shift: &str| {
        let shifted = format!(
            "CREATE OR REPLACE FUNCTION faked.clock_timestamp() RETURNS timestamptz LANGUAGE sql \
             AS $$ SELECT pg_catalog.clock_timestamp() + interval '{shift}' $$"
        );
        server.batch_execute(&shifted).await.unwrap();
    };
    let mut at = (1..).map(|number| slot_of(&format!("slot {number}")));
    for (shift, difference) in [("-37 hours", "37.0 h ahead of"), ("13 hours", "13.0 h behind")] {
        set(shift).await;
        let storage = PostgresStorage::open(&url(&database)).await.unwrap();
        let slot = at.next().unwrap();
        let claim = storage.commit(slot.clone(), Step::claim(&VACANT, &entry(1, 1, TTL))).await;
        let Err(WriteError::NotApplied(cause)) = claim else { panic!("{shift}: {claim:?}") };
        assert!(cause.to_string().contains(difference), "{cause}");
        // Corrected, or close enough, it needs no new handle.
        set("-11 hours").await;
        let claim = storage.commit(slot.clone(), Step::claim(&VACANT, &entry(1, 1, TTL))).await;
        assert_eq!(claim.unwrap(), Done::Applied);
        // A leader is not disturbed.
        set(shift).await;
        let renewal = storage.commit(slot, Step::renew(&entry(1, 1, TTL), &entry(1, 2, TTL))).await;
        assert_eq!(renewal.unwrap(), Done::Applied);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_that_another_transaction_locks_is_not_waited_for_longer_than_a_tenth_of_the_ttl() {
    let (database, storage) = opened().await;
    let (at, held) = led(&storage, TTL).await;
    let other = client(&database).await;
    other.batch_execute("BEGIN; SELECT FROM sysvvm.leader FOR UPDATE").await.unwrap();
    let renewed = entry(1, 2, TTL);
    let renewal = storage.commit(at.clone(), Step::renew(&held, &renewed)).await;
    assert!(matches!(renewal, Err(WriteError::NotApplied(_))), "{renewal:?}");
    // A look waits for no lock.
    assert_eq!(storage.peek(std::slice::from_ref(&at)).await.unwrap()[0].entry(), Some(&held));
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(storage.commit(at, Step::renew(&held, &renewed)).await.unwrap(), Done::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_that_the_server_ended_is_replaced_without_an_error() {
    let (database, storage) = opened().await;
    let (at, held) = led(&storage, TTL).await;
    let other = client(&database).await;
    let others = "FROM pg_stat_activity WHERE application_name = 'vvm' AND datname = current_database()";
    other.batch_execute(&format!("SELECT pg_terminate_backend(pid) {others}")).await.unwrap();
    while !other.query(&format!("SELECT {others}"), &[]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(storage.commit(at, Step::renew(&held, &entry(1, 2, TTL))).await.unwrap(), Done::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_whose_connection_is_ended_is_unknown() {
    let (database, storage) = opened().await;
    let (at, held) = led(&storage, Duration::from_secs(600)).await;
    let storage = Arc::new(storage);
    let other = client(&database).await;
    other.batch_execute("BEGIN; SELECT FROM sysvvm.leader FOR UPDATE").await.unwrap();
    let renewal = tokio::spawn({
        let (storage, at, held) = (Arc::clone(&storage), at.clone(), held.clone());
        async move { storage.commit(at, Step::renew(&held, &entry(1, 2, Duration::from_secs(600)))).await }
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
async fn lost_connection_behind_the_server_leaves_a_write_unknown() {
    let (database, storage) = opened().await;
    let (at, held) = led(&storage, TTL).await;
    let other = client(&database).await;
    // As poolers report a server that they lost, perhaps after its commit.
    for (code, is_unknown) in [("08000", true), ("08006", true), ("40003", true), ("40001", false)] {
        let failing = format!(
            "CREATE OR REPLACE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '{code}'; END $$; \
             CREATE OR REPLACE TRIGGER fails BEFORE UPDATE ON sysvvm.leader EXECUTE FUNCTION fails()"
        );
        other.batch_execute(&failing).await.unwrap();
        let renewal = storage.commit(at.clone(), Step::renew(&held, &entry(1, 2, TTL))).await;
        let Err(error) = renewal else { panic!("{code}: {renewal:?}") };
        assert_eq!(matches!(error, WriteError::Unknown(_)), is_unknown, "{code}: {error:?}");
        assert!(is_unknown || matches!(error, WriteError::NotApplied(_)), "{code}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_that_is_dropped_under_a_handle_is_replaced() {
    let (database, storage) = opened().await;
    let (at, held) = led(&storage, TTL).await;
    client(&database).await.batch_execute("DROP SCHEMA sysvvm CASCADE").await.unwrap();
    let renewal = storage.commit(at.clone(), Step::renew(&held, &entry(1, 2, TTL))).await;
    assert!(matches!(renewal, Err(WriteError::Replaced(_))), "{renewal:?}");
    // Created again it is empty, and another database.
    init_storage(&url(&database)).await.unwrap();
    let renewal = storage.commit(at, Step::renew(&held, &entry(1, 2, TTL))).await;
    assert!(matches!(renewal, Err(WriteError::Replaced(_))), "{renewal:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn age_of_a_record_is_that_of_its_last_write_by_the_servers_clock() {
    let (database, storage) = opened().await;
    let (at, held) = ([slot_of("held"), slot_of("vacant")], entry(1, 1, TTL));
    let ages = async || storage.shown_ages(&at).await.unwrap();
    assert_eq!(storage.commit(at[0].clone(), Step::claim(&VACANT, &held)).await.unwrap(), Done::Applied);
    assert!(matches!(ages().await[..], [Some(_), None]), "{:?}", ages().await);
    let server = client(&database).await;
    let age = "UPDATE sysvvm.leader SET written_at = clock_timestamp() - interval '1 hour'";
    server.batch_execute(age).await.unwrap();
    let hour = Duration::from_secs(3600);
    assert!(ages().await[0].unwrap() >= hour);
    // Documents are written beside the record.
    let fence = Fence { epoch: held.epoch, incarnation: held.incarnation(), after: DocumentVersion::NONE };
    storage.commit(at[0].clone(), Step::batch(&fence, &[])).await.unwrap();
    assert!(ages().await[0].unwrap() >= hour);
    assert_eq!(
        storage.commit(at[0].clone(), Step::renew(&held, &entry(1, 2, TTL))).await.unwrap(),
        Done::Applied
    );
    assert!(ages().await[0].unwrap() < hour);
    // As a schema was before it had these times.
    server.batch_execute("ALTER TABLE sysvvm.leader DROP COLUMN written_at").await.unwrap();
    let storage = PostgresStorage::open(&url(&database)).await.unwrap();
    assert_eq!(storage.shown_ages(&at).await.unwrap(), [None, None]);
    assert_eq!(
        storage.commit(at[0].clone(), Step::renew(&entry(1, 2, TTL), &entry(1, 3, TTL))).await.unwrap(),
        Done::Applied
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn login_that_may_only_read_can_look_but_not_claim() {
    let (database, login) = (fresh_database().await, fresh("login"));
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
    let claim = storage.commit(slot_of("slot"), Step::claim(&VACANT, &entry(1, 1, TTL))).await;
    assert!(
        matches!(&claim, Err(WriteError::Fatal(cause)) if cause.to_string().contains("grants")),
        "{claim:?}"
    );
    owner.batch_execute(&format!("DROP OWNED BY {login}; DROP ROLE {login}")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn server_describes_version_durability_and_standbys() {
    let (_, storage) = opened().await;
    let described = storage.describe().await.unwrap();
    println!("{described:#?}");
    assert!(described.software.as_deref().unwrap().starts_with("PostgreSQL 1"), "{described:?}");
    assert_eq!(described.setting("fsync"), Some("on"));
    assert_eq!(described.setting("largest TTL"), Some("86400000 ms"));
    assert!(described.setting("timeline").is_some() && described.setting("standbys").is_some());
    storage.close().await;
    assert!(matches!(storage.describe().await, Err(ReadError::Fatal(_))));
}
