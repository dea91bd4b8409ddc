use super::{client, fresh_database, url};
use crate::{
    driver::{
        TTL, VACANT, age_is_that_of_the_last_write, described, entry, fresh, is_the_storage_at, led,
        login_can_look_but_not_claim, many_create, renewed, slot_of, storage_that_is_dropped_is_replaced,
        ttl_is_refused_until_the_bound_is_raised,
    },
    is_refused, refused, says,
};
use ielections::{ReadError, WriteError};
use std::{sync::Arc, time::Duration};
use vvm_storage::{
    OpenErrorKind, Partition, Step, StepOutcome, SysVvmStorage, init_storage,
    postgres::{OpenOptions, PostgresStorage},
};

async fn opened() -> (String, PostgresStorage) {
    let database = fresh_database().await;
    init_storage(&url(&database)).await.unwrap();
    let storage = PostgresStorage::open(&url(&database)).await.unwrap();
    (database, storage)
}

#[tokio::test(flavor = "multi_thread")]
async fn database_that_is_not_ready_is_refused_with_the_way_out() {
    let database = fresh_database().await;
    is_refused(&url(&database), OpenErrorKind::Missing, &["vvm init-storage"]).await;
    client(&database).await.batch_execute("CREATE SCHEMA sysvvm").await.unwrap();
    says(&refused(&url(&database)).await, &["another program"]);
    says(&init_storage(&url(&database)).await.unwrap_err(), &["another program"]);
    let comment = "COMMENT ON SCHEMA sysvvm IS 'vvm elections, format 2'";
    client(&database).await.batch_execute(comment).await.unwrap();
    says(&init_storage(&url(&database)).await.unwrap_err(), &["format 2", "later version"]);
    is_refused(&url("vvm_test_missing"), OpenErrorKind::Refused, &["CREATE DATABASE"]).await;
    let silent = "postgres://postgres@127.0.0.1:1/postgres";
    is_refused(silent, OpenErrorKind::Passing, &["no PostgreSQL answers at"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_of_the_caller_opens_the_same_records() {
    let url = url(&fresh_database().await);
    init_storage(&url).await.unwrap();
    let own = url.split('?').next().unwrap().parse().unwrap();
    let options = OpenOptions { request_timeout: Duration::from_secs(20), ..OpenOptions::default() };
    let storage = PostgresStorage::open_with(&own, None, options).await.unwrap();
    is_the_storage_at(&url, Arc::new(storage)).await;
    let mut forgetful = own.clone();
    forgetful.options("-c synchronous_commit=off");
    says(&PostgresStorage::open_with(&forgetful, None, options).await.unwrap_err(), &["synchronous_commit"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_create_at_once_and_again() {
    many_create(&url(&fresh_database().await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ttl_beyond_the_bound_is_refused_until_the_bound_is_raised() {
    let raised = url(&fresh_database().await);
    let plain = raised.replace("max_ttl=86400s", "request_timeout=20s");
    ttl_is_refused_until_the_bound_is_raised(&plain, &raised).await;
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
        assert_eq!(claim.unwrap(), StepOutcome::Applied);
        set(shift).await;
        assert_eq!(renewed(&storage, &slot, &entry(1, 1, TTL), 2).await.unwrap(), StepOutcome::Applied);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_that_another_transaction_locks_is_not_waited_for_longer_than_a_tenth_of_the_ttl() {
    let (database, storage) = opened().await;
    let (at, held) = led(&storage, TTL).await;
    let other = client(&database).await;
    other.batch_execute("BEGIN; SELECT FROM sysvvm.leader FOR UPDATE").await.unwrap();
    let renewal = renewed(&storage, &at, &held, 2).await;
    assert!(matches!(renewal, Err(WriteError::NotApplied(_))), "{renewal:?}");
    // A look waits for no lock.
    assert_eq!(storage.peek(std::slice::from_ref(&at)).await.unwrap()[0].entry(), Some(&held));
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(renewed(&storage, &at, &held, 2).await.unwrap(), StepOutcome::Applied);
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
    assert_eq!(renewed(&storage, &at, &held, 2).await.unwrap(), StepOutcome::Applied);
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
        async move { renewed(&*storage, &at, &held, 2).await }
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
    for (code, is_unknown) in
        [("08006", true), ("40003", true), ("58000", true), ("XX000", true), ("40001", false)]
    {
        let failing = format!(
            "CREATE OR REPLACE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '{code}'; END $$; \
             CREATE OR REPLACE TRIGGER fails BEFORE UPDATE ON sysvvm.leader EXECUTE FUNCTION fails()"
        );
        other.batch_execute(&failing).await.unwrap();
        let renewal = renewed(&storage, &at, &held, 2).await;
        let Err(error) = renewal else { panic!("{code}: {renewal:?}") };
        assert_eq!(matches!(error, WriteError::Unknown(_)), is_unknown, "{code}: {error:?}");
        assert!(is_unknown || matches!(error, WriteError::NotApplied(_)), "{code}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn write_that_waits_while_its_handle_adopts_another_history_is_replaced() {
    let (database, storage) = opened().await;
    let (storage, other) = (Arc::new(storage), client(&database).await);
    // Adoption leaves requests of operators as they are.
    let (pause, paused) = (Partition::from_bytes(*b"\x03name"), entry(1, 1, Duration::from_secs(600)));
    storage.commit(pause.clone(), Step::claim(&VACANT, &paused)).await.unwrap();
    other.batch_execute("UPDATE sysvvm.history SET witness = 'another'").await.unwrap();
    other.batch_execute("BEGIN; SELECT FROM sysvvm.leader FOR UPDATE").await.unwrap();
    let renewal = tokio::spawn({
        let (storage, pause) = (Arc::clone(&storage), pause.clone());
        async move { renewed(&*storage, &pause, &paused, 2).await }
    });
    let waiting = "SELECT FROM pg_stat_activity WHERE application_name = 'vvm' AND wait_event_type = 'Lock' \
                   AND datname = current_database()";
    while other.query(waiting, &[]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    storage.peek(&[pause]).await.unwrap();
    other.batch_execute("COMMIT").await.unwrap();
    let renewal = renewal.await.unwrap();
    assert!(matches!(renewal, Err(WriteError::Replaced(_))), "{renewal:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_that_is_dropped_under_a_handle_is_replaced() {
    let database = fresh_database().await;
    let drops = async || client(&database).await.batch_execute("DROP SCHEMA sysvvm CASCADE").await.unwrap();
    storage_that_is_dropped_is_replaced(&url(&database), drops).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn age_of_a_record_is_that_of_its_last_write_by_the_servers_clock() {
    let (database, storage) = opened().await;
    let server = client(&database).await;
    let age = "UPDATE sysvvm.leader SET written_at = clock_timestamp() - interval '1 hour'";
    age_is_that_of_the_last_write(&storage, async || server.batch_execute(age).await.unwrap()).await;
    // As a schema was before it had these times.
    server.batch_execute("ALTER TABLE sysvvm.leader DROP COLUMN written_at").await.unwrap();
    let storage = PostgresStorage::open(&url(&database)).await.unwrap();
    let at = slot_of("slot");
    assert_eq!(storage.shown_ages(std::slice::from_ref(&at)).await.unwrap(), [None]);
    assert_eq!(renewed(&storage, &at, &entry(1, 2, TTL), 3).await.unwrap(), StepOutcome::Applied);
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
    let of_login = url(&database).replace("postgres@", &format!("{login}@"));
    login_can_look_but_not_claim(&of_login).await;
    // A right that is withdrawn may be given back.
    let storage = PostgresStorage::open_read_only(&of_login).await.unwrap();
    let at = [slot_of("slot")];
    storage.peek(&at).await.unwrap();
    owner.batch_execute(&format!("REVOKE ALL ON ALL TABLES IN SCHEMA sysvvm FROM {login}")).await.unwrap();
    let denied = storage.peek(&at).await;
    assert!(matches!(denied, Err(ReadError::Unavailable(_))), "{denied:?}");
    owner.batch_execute(grants.split_once("; ").unwrap().1).await.unwrap();
    storage.peek(&at).await.unwrap();
    owner.batch_execute(&format!("DROP OWNED BY {login}; DROP ROLE {login}")).await.unwrap();
}

fn grants(error: &vvm_storage::OpenError) -> String {
    println!("{error}");
    assert_eq!(error.kind(), OpenErrorKind::Refused);
    error.to_string().split_once("As an administrator of the database: ").unwrap().1.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn login_without_rights_may_not_init_until_the_printed_grants_are_given() {
    let (database, login) = (fresh_database().await, fresh("login"));
    let owner = client(&database).await;
    owner.batch_execute(&format!("CREATE ROLE {login} LOGIN")).await.unwrap();
    let of_login = url(&database).replace("postgres@", &format!("{login}@"));
    let creation = grants(&init_storage(&of_login).await.unwrap_err());
    assert!(creation.contains("GRANT CREATE ON DATABASE"), "{creation}");
    init_storage(&url(&database)).await.unwrap();
    for given in ["", "GRANT USAGE ON SCHEMA sysvvm", "GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA sysvvm"] {
        if !given.is_empty() {
            owner.batch_execute(&format!("{given} TO {login}")).await.unwrap();
        }
        let missing = grants(&init_storage(&of_login).await.unwrap_err());
        assert!(missing.contains("GRANT USAGE ON SCHEMA sysvvm"), "{missing}");
    }
    let missing = grants(&init_storage(&of_login).await.unwrap_err());
    owner.batch_execute(&missing).await.unwrap();
    init_storage(&of_login).await.unwrap();
    owner.batch_execute(&format!("DROP SCHEMA sysvvm CASCADE; {creation}")).await.unwrap();
    init_storage(&of_login).await.unwrap();
    owner.batch_execute(&format!("DROP OWNED BY {login}; DROP ROLE {login}")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn warning_at_each_login_is_no_answer_to_a_request() {
    let (database, _) = opened().await;
    let owner = client(&database).await;
    // As after an upgrade of the system's library.
    let upgrade = "UPDATE pg_database SET datcollversion = 'old' WHERE datname = current_database()";
    owner.batch_execute(upgrade).await.unwrap();
    let storage = PostgresStorage::open(&url(&database)).await.unwrap();
    led(&storage, TTL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_describes_version_durability_and_standbys() {
    let described = described(&url(&fresh_database().await)).await;
    assert!(described.software.as_deref().unwrap().starts_with("PostgreSQL 1"), "{described:?}");
    assert_eq!(described.setting("fsync"), Some("on"));
    assert_eq!(described.setting("largest TTL"), Some("86400000 ms"));
    assert!(described.setting("timeline").is_some() && described.setting("standbys").is_some());
}
