use super::client_at;
use crate::{
    driver::{TTL, VACANT, entry, opened, slot_of},
    failover_suite::{self, Pair, Promotable, claimed, is_waiting, peeked, refused_claim, settled},
    is_refused,
};
use ielections::{
    Candidacy, Fence, Holder, ReadError, Terms, Ttl, WriteError, documents::DocumentVersion,
    testing::elections_suite::Process,
};
use servers::{postgres::Postgres, replicated::Replicated as _};
use std::{path::Path, pin::pin, sync::Arc, time::Duration};
use tokio_postgres::Client;
use vvm_clock::{Clock, SystemClock};
use vvm_storage::{
    ElectionKey, ElectionsTtlStorage, OpenErrorKind, Partition, SlotNumber, Step, StepOutcome, SysVvmStorage,
    init_storage, postgres::PostgresStorage,
};

failover_suite::failover_suite!(Postgres);

impl Promotable for Postgres {
    /// Settings of a server or login that the driver must not depend on.
    fn started() -> Self {
        start(&["client_min_messages=error", "default_transaction_isolation=serializable"])
    }

    fn hosts(hosts: &str) -> String {
        format!("postgres://postgres@{hosts}/postgres")
    }

    async fn catch_up(&self, standby: &Self) {
        let (primary, standby) = (client(self).await, client(standby).await);
        let written = text(&primary, "SELECT pg_current_wal_flush_lsn()::text").await;
        let received = format!("SELECT (pg_last_wal_replay_lsn() >= '{written}')::text");
        while text(&standby, &received).await != "true" {
            tokio::task::yield_now().await;
        }
    }
}

fn start(settings: &[&str]) -> Postgres {
    Postgres::start(Path::new("../../target"), &[], settings).unwrap()
}

async fn client(server: &Postgres) -> Client {
    client_at(&server.url("postgres")).await
}

async fn text(client: &Client, query: &str) -> String {
    client.query_one(query, &[]).await.unwrap().get(0)
}

async fn held(client: &Client) -> i64 {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'vvm'";
    client.query_one(count, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn candidates_that_wait_leave_a_third_of_the_connections_and_a_leader_keeps_its_own() {
    let server = start(&["max_connections=30"]);
    let (url, other) = (server.url("postgres"), client(&server).await);
    let fill = async || {
        let mut others = Vec::new();
        while let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await {
            others.push((client, tokio::spawn(connection)));
        }
        others
    };
    failover_suite::candidates_that_wait_leave_a_third_of_the_connections_and_a_leader_keeps_its_own(
        &format!("{url}?request_timeout=20s"),
        async || held(&other).await,
        fill,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_would_forget_is_refused() {
    for (setting, value) in [("fsync", "off"), ("synchronous_commit", "off"), ("synchronous_commit", "local")]
    {
        let server = start(&[&format!("{setting}={value}")]);
        let says = format!("has {setting} = {value}, so that a crash forgets leaders");
        is_refused(&server.url("postgres"), OpenErrorKind::Refused, &[&says]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn standbys_that_are_promoted_independently_are_told_apart() {
    let mut pair = Pair::<Postgres>::start().await;
    let mut other = pair.primary.standby().unwrap();
    let held = entry(5, 1, TTL);
    claimed(&*pair.open().await, "slot", &VACANT, &held).await;
    // Adoption leaves requests of operators as they are.
    let (pause, paused) = (Partition::from_bytes(*b"\x03name"), held.clone());
    assert_eq!(
        pair.open().await.commit(pause.clone(), Step::claim(&VACANT, &paused)).await.unwrap(),
        StepOutcome::Applied
    );
    pair.cut().await;
    pair.primary.kill().unwrap();
    other.promote().unwrap();
    pair.standby.restart().unwrap();
    pair.standby.promote().unwrap();
    let timeline = "SELECT substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)";
    let (one, two) = (client(&pair.standby).await, client(&other).await);
    assert_eq!(text(&one, timeline).await, text(&two, timeline).await);
    // A leader on the one that is promoted first …
    let url = format!("postgres://postgres@{},{}/postgres", other.address(), pair.standby.address());
    let leader = opened(&url).await.unwrap();
    let stands = refused_claim(&*leader, "slot", &VACANT, &held).await;
    let held = entry(stands.last_epoch().unwrap().get() + 1, 1, TTL);
    claimed(&*leader, "slot", &stands, &held).await;
    // … which is not seen on the other one, although both are on the same timeline of the same system.
    // There, another candidate has adopted the history: the witness alone differs.
    other.kill().unwrap();
    let newcomer = opened(&pair.standby.url("postgres")).await.unwrap();
    peeked(&*newcomer, "slot").await;
    let renewal = leader.commit(slot_of("slot"), Step::renew(&held, &entry(held.epoch.get(), 2, TTL))).await;
    assert!(matches!(renewal, Err(WriteError::Replaced(_))), "{renewal:?}");
    // This row is the same on both: the witness in the statement alone tells.
    let replaced = leader.commit(pause, Step::renew(&paused, &entry(5, 2, TTL))).await;
    assert!(matches!(replaced, Err(WriteError::Replaced(_))), "{replaced:?}");
    let stands = refused_claim(&*leader, "slot", &stands, &entry(held.epoch.get() + 1, 1, TTL)).await;
    assert!(is_waiting(&stands, held.epoch.get()), "{stands:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn old_primary_that_runs_again_is_left_by_a_handle_that_saw_the_new_one() {
    let mut pair = Pair::<Postgres>::start().await;
    let (handle, at) = (pair.open().await, [slot_of("slot")]);
    claimed(&*handle, "slot", &VACANT, &entry(5, 1, TTL)).await;
    pair.cut().await;
    pair.fail_over();
    while handle.peek(&at).await.is_err() {}
    pair.standby.kill().unwrap();
    // On its old timeline, it names itself in its history.
    pair.primary.restart().unwrap();
    loop {
        match handle.peek(&at).await {
            Err(ReadError::Unavailable(cause)) if cause.to_string().contains("an old primary runs again") => {
                break;
            }
            Err(ReadError::Unavailable(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    pair.standby.restart().unwrap();
    while let Err(error) = handle.peek(&at).await {
        println!("{error}");
    }
    let stands = peeked(&*handle, "slot").await;
    assert!(is_waiting(&stands, 5), "{stands:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_that_meets_an_old_primary_goes_back_to_its_own_server() {
    let mut pair = Pair::<Postgres>::start().await;
    let leader = pair.open().await;
    pair.cut().await;
    pair.fail_over();
    let stands = refused_claim(&*leader, "slot", &VACANT, &entry(5, 1, TTL)).await;
    let held = entry(stands.last_epoch().unwrap().get() + 1, 1, TTL);
    claimed(&*leader, "slot", &stands, &held).await;
    pair.standby.kill().unwrap();
    pair.primary.restart().unwrap();
    let fence = Fence { epoch: held.epoch, incarnation: held.incarnation(), after: DocumentVersion::NONE };
    let renewal = Step::renew(&held, &entry(held.epoch.get(), 2, TTL));
    let release = Step::release(held.incarnation(), held.epoch);
    for step in [renewal.clone(), Step::batch(&fence, &[]), release] {
        loop {
            match leader.commit(slot_of("slot"), step.clone()).await {
                Err(WriteError::NotApplied(cause))
                    if cause.to_string().contains("an old primary runs again") =>
                {
                    break;
                }
                Err(WriteError::NotApplied(_) | WriteError::Unknown(_)) => {}
                other => panic!("{step:?}: {other:?}"),
            }
        }
    }
    pair.standby.restart().unwrap();
    assert_eq!(settled(&*leader, "slot", renewal).await.unwrap(), StepOutcome::Applied);
}

/// As `pg_upgrade` and a dump make it: its timelines begin anew.
#[tokio::test(flavor = "multi_thread")]
async fn new_cluster_with_the_rows_of_the_last_one_is_adopted() {
    let (mut pair, new) = (Pair::<Postgres>::start().await, start(&[]));
    init_storage(&format!("{}?max_ttl=2s", new.url("postgres"))).await.unwrap();
    let url = pair.url().replace("/postgres?", &format!(",{}/postgres?", new.address()));
    let handle = opened(&url).await.unwrap();
    pair.cut().await;
    pair.fail_over();
    let stands = refused_claim(&*handle, "slot", &VACANT, &entry(5, 1, TTL)).await;
    let kept = "SELECT format('UPDATE sysvvm.history SET system = %s, timeline = %s, witness = %L', \
                system, timeline, witness) FROM sysvvm.history";
    let kept = text(&client(&pair.standby).await, kept).await;
    client(&new).await.batch_execute(&kept).await.unwrap();
    pair.standby.kill().unwrap();
    let stands = refused_claim(&*handle, "slot", &stands, &entry(6, 1, TTL)).await;
    assert!(is_waiting(&stands, 6), "{stands:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_survives_a_restart_of_the_server_within_its_lease() {
    let mut server = start(&[]);
    let url = server.url("postgres");
    init_storage(&url).await.unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start().unwrap());
    let storage = ElectionsTtlStorage::new(opened(&url).await.unwrap());
    let process = Process::start(Arc::new(storage), Arc::clone(&clock));
    let key = ElectionKey { cluster: "restarts".into(), slot: SlotNumber::FIRST };
    let terms = Terms::new(Holder::new("leader").unwrap(), Ttl::new(Duration::from_secs(10)).unwrap());
    let candidacy = Candidacy { slots: vec![key], terms };
    let (_, leadership) = process.elections.acquire(candidacy).await.unwrap();
    let standing = leadership.standing().clone();
    for _ in 0..3 {
        let kill_at = standing.kill_at();
        server.restart().unwrap();
        while standing.kill_at() == kill_at {
            assert!(standing.loss().is_none(), "lost by an outage shorter than the lease");
            clock.sleep(Duration::from_millis(20)).await;
        }
    }
    leadership.release().await;
    process.elections.cleanup().await;
}

// Synchronous replication: what a cancelled wait leaves on the primary alone is not taken for written.

const WAITING: &str = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'vvm'";

/// Makes commits wait for the standby, and kills that.
async fn cut_synchronous(pair: &mut Pair<Postgres>, other: &Client) {
    other.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'").await.unwrap();
    other.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    pair.cut().await;
    // Commits wait once the checkpointer has read the settings, which no query shows.
    let probe = client(&pair.primary).await;
    probe.batch_execute("SET application_name = 'vvm'").await.unwrap();
    loop {
        let is_waiting = async {
            let cancel = format!("SELECT pg_cancel_backend(pid) {WAITING}");
            while other.query(&cancel, &[]).await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let mut written = pin!(probe.batch_execute("CREATE TABLE probe (); DROP TABLE probe"));
        tokio::select! {
            written = &mut written => written.unwrap(),
            // Answered, it waits no more, and no later look takes it for another one.
            () = is_waiting => return written.await.unwrap(),
        }
    }
}

/// Opens the storage with a short time limit, which even the primary may miss on a busy machine.
async fn hasty(pair: &Pair<Postgres>) -> PostgresStorage {
    let url = pair.url().replace("request_timeout=4s", "request_timeout=300ms");
    loop {
        match PostgresStorage::open(&url).await {
            Ok(storage) => return storage,
            Err(error) => assert!(error.is_passing(), "{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_without_a_standby_leave_one_connection_waiting_for_each_record() {
    let mut pair = Pair::<Postgres>::start().await;
    let patient = pair.open().await;
    let names = ["one", "two"];
    for name in names {
        claimed(&*patient, name, &VACANT, &entry(5, 1, TTL)).await;
    }
    let storage = hasty(&pair).await;
    let other = client(&pair.primary).await;
    cut_synchronous(&mut pair, &other).await;
    for write in 2..10 {
        for name in names {
            let renewal =
                storage.commit(slot_of(name), Step::renew(&entry(5, 1, TTL), &entry(5, write, TTL))).await;
            // The first one waits, and has the row locked. The others give up at the lock.
            assert!(
                matches!(renewal, Err(WriteError::Unknown(_) | WriteError::NotApplied(_))),
                "{renewal:?}"
            );
            let read = storage.read(slot_of(name)).await;
            assert!(matches!(read, Err(ReadError::Unavailable(_))), "{read:?}");
        }
    }
    let waiting = text(&other, &format!("SELECT count(*)::text {WAITING}")).await;
    assert_eq!(waiting, "2", "connections that wait for the standby");
    pair.standby.restart().unwrap();
    for name in names {
        while storage.read(slot_of(name)).await.is_err() {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(text(&other, &format!("SELECT count(*)::text {WAITING}")).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn write_that_no_standby_has_is_unknown_and_not_read_back() {
    let mut pair = Pair::<Postgres>::start().await;
    let storage = pair.open().await;
    let held = entry(5, 1, TTL);
    claimed(&*storage, "slot", &VACANT, &held).await;
    let other = client(&pair.primary).await;
    cut_synchronous(&mut pair, &other).await;

    // The commit waits for the standby. Cancelled, it is answered with success, and a warning.
    let renewed = entry(5, 2, TTL);
    let patient = opened(&pair.url().replace("request_timeout=4s", "request_timeout=60s")).await.unwrap();
    let renewal = tokio::spawn({
        let (held, renewed) = (held.clone(), renewed.clone());
        async move { patient.commit(slot_of("slot"), Step::renew(&held, &renewed)).await }
    });
    while other.query(&format!("SELECT pg_cancel_backend(pid) {WAITING}"), &[]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let renewal = renewal.await.unwrap();
    let Err(WriteError::Unknown(cause)) = renewal else { panic!("{renewal:?}") };
    assert!(cause.to_string().contains("standby"), "{cause}");

    // A plain look shows it. What confirms a write does not, before a standby has it.
    assert_eq!(peeked(&*storage, "slot").await.entry(), Some(&renewed));
    let read = storage.read(slot_of("slot")).await;
    assert!(matches!(read, Err(ReadError::Unavailable(_))), "{read:?}");
    let fence = storage.fence_state(&slot_of("slot")).await;
    assert!(matches!(fence, Err(ReadError::Unavailable(_))), "{fence:?}");
    // A refusal shows what stands, and confirms as well.
    let again = storage.commit(slot_of("slot"), Step::renew(&held, &entry(5, 3, TTL))).await;
    assert!(matches!(again, Err(WriteError::Unknown(_) | WriteError::NotApplied(_))), "{again:?}");

    pair.standby.restart().unwrap();
    let read = storage.read(slot_of("slot")).await.unwrap();
    assert_eq!(read.entry(), Some(&renewed));
}
