//! Standbys that are promoted, and settings by which a server would forget: on servers that each test starts.
//!
//! A standby that is killed before the primary's last writes, and started again after the primary's end, has
//! forgotten them when it is promoted.

use super::{TTL, client_at, entry, refused, slot_of};
use crate::VACANT;
use ielections::{
    Candidacy, Entry, Epoch, Fence, Holder, ReadError, Slot, Terms, Ttl, Vacant, WriteError,
    documents::DocumentVersion, testing::elections_suite::Process,
};
use servers::postgres::Postgres;
use std::{num::NonZeroU32, path::Path, sync::Arc, time::Duration};
use tokio_postgres::Client;
use vvm_clock::{Clock, SystemClock};
use vvm_storage::{
    Done, ElectionKey, ElectionsTtlStorage, Partition, Shown, SlotNumber, Step, SysVvmStorage, init_storage,
    postgres::PostgresStorage,
};

/// A primary and a standby of it.
struct Pair {
    primary: Postgres,
    standby: Postgres,
}

/// The bound of all TTLs here.
const OPTIONS: &str = "max_ttl=2s&request_timeout=4s";

impl Pair {
    /// With the storage ready. The standby is asynchronous.
    async fn start() -> Self {
        let mut primary = start(&[]);
        init_storage(&format!("{}?{OPTIONS}", primary.url("postgres"))).await.unwrap();
        let standby = primary.standby().unwrap();
        Self { primary, standby }
    }

    /// Both hosts, the primary first.
    fn url(&self) -> String {
        let (first, second) = (self.primary.address(), self.standby.address());
        format!("postgres://postgres@{first},{second}/postgres?{OPTIONS}")
    }

    async fn open(&self) -> PostgresStorage {
        PostgresStorage::open(&self.url()).await.unwrap()
    }

    /// Ends the standby once it has all that was written so far.
    async fn cut(&mut self) {
        let (primary, standby) = (client(&self.primary).await, client(&self.standby).await);
        let written: String = text(&primary, "SELECT pg_current_wal_flush_lsn()::text").await;
        let received = format!("SELECT (pg_last_wal_replay_lsn() >= '{written}')::text");
        while text(&standby, &received).await != "true" {
            tokio::task::yield_now().await;
        }
        self.standby.kill().unwrap();
    }

    /// Ends the primary and promotes the standby.
    fn fail_over(&mut self) {
        self.primary.kill().unwrap();
        self.standby.restart().unwrap();
        self.standby.promote().unwrap();
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

async fn claimed(storage: &PostgresStorage, name: &str, from: &Slot, entry: &Entry) {
    assert_eq!(storage.commit(slot_of(name), Step::claim(from, entry)).await.unwrap(), Done::Applied);
}

async fn peeked(storage: &PostgresStorage, name: &str) -> Slot {
    storage.peek(&[slot_of(name)]).await.unwrap().remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_would_forget_is_refused() {
    for (setting, value) in [("fsync", "off"), ("synchronous_commit", "off"), ("synchronous_commit", "local")]
    {
        let server = start(&[&format!("{setting}={value}")]);
        let error = refused(&server.url("postgres")).await;
        let says = format!("has {setting} = {value}, so that a crash forgets leaders");
        assert!(error.to_string().contains(&says), "{error}");
        assert!(!error.is_passing(), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_is_refused_until_it_is_promoted() {
    let mut pair = Pair::start().await;
    let error = refused(&pair.standby.url("postgres")).await;
    assert!(error.to_string().contains("is a standby or read-only") && error.is_passing(), "{error}");
    pair.cut().await;
    pair.fail_over();
    assert!(PostgresStorage::open(&pair.standby.url("postgres")).await.is_ok());
}

// Forgotten writes of the primary: each hole that follows is tried on records.

fn vacant(epoch: u64) -> Slot {
    Slot::Vacant(Vacant { last_epoch: Some(Epoch::new(epoch).unwrap()) })
}

/// Claims a slot and releases it.
async fn vacated(storage: &PostgresStorage, name: &str, epoch: u64) {
    let held = entry(epoch, 1, TTL);
    claimed(storage, name, &VACANT, &held).await;
    storage.commit(slot_of(name), Step::release(held.incarnation(), held.epoch)).await.unwrap();
}

/// What stands in a slot under which a forgotten leader may be at work: a record of no leader, which standbys
/// observe for the largest TTL.
fn is_waiting(slot: &Slot, forgotten: u64) -> bool {
    slot.entry().is_some_and(|entry| entry.ttl.get() == TTL && entry.epoch.get() > forgotten)
}

async fn refused_claim(storage: &PostgresStorage, name: &str, from: &Slot, entry: &Entry) -> Slot {
    match storage.commit(slot_of(name), Step::claim(from, entry)).await.unwrap() {
        Done::Refused(Shown::Slot(stands)) => stands,
        other => panic!("{name}: {other:?} although a forgotten leader may be at work"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slot_whose_claim_was_forgotten_is_waited_for() {
    let mut pair = Pair::start().await;
    let leader = pair.open().await;
    vacated(&leader, "released", 5).await;
    pair.cut().await;
    // Both claims are acknowledged, and forgotten.
    claimed(&leader, "released", &vacant(5), &entry(6, 1, TTL)).await;
    claimed(&leader, "new", &VACANT, &entry(6, 1, TTL)).await;
    // It has seen nothing since then.
    let before = pair.open().await;
    pair.fail_over();
    let after = pair.open().await;
    for candidate in [&before, &after] {
        for (name, from) in [("released", vacant(5)), ("new", VACANT)] {
            let stands = refused_claim(candidate, name, &from, &entry(7, 1, TTL)).await;
            assert!(is_waiting(&stands, 6), "{name}: {stands:?}");
            assert_eq!(candidate.read(slot_of(name)).await.unwrap(), stands, "{name}");
        }
    }
    // Observed for its TTL, it is taken over like any other.
    let stands = after.read(slot_of("released")).await.unwrap();
    let next = entry(stands.last_epoch().unwrap().get() + 1, 1, TTL);
    claimed(&after, "released", &stands, &next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn largest_ttl_that_the_promoted_server_forgot_is_waited_for() {
    let mut pair = Pair::start().await;
    let (early, long) = (pair.open().await, Duration::from_secs(9));
    let raised = pair.url().replace("max_ttl=2s", "max_ttl=9s");
    pair.cut().await;
    // The standby has not heard of the raised bound, nor of the claims that it allows.
    init_storage(&raised).await.unwrap();
    let leader = pair.open().await;
    for name in ["old", "new"] {
        claimed(&leader, name, &VACANT, &entry(5, 1, long)).await;
    }
    pair.fail_over();
    // One that opened before knows no more than the new server does.
    let adopted = refused_claim(&early, "old", &VACANT, &entry(6, 1, TTL)).await;
    assert!(is_waiting(&adopted, 0), "{adopted:?}");
    // The handle that knows it, and a newcomer whose URL says it, make all wait anew, and new slots as well.
    let told = PostgresStorage::open(&raised).await.unwrap();
    for (candidate, name) in [(&leader, "old"), (&told, "old"), (&early, "old"), (&told, "new")] {
        let stands = refused_claim(candidate, name, &VACANT, &entry(6, 1, TTL)).await;
        let record = stands.entry().unwrap();
        assert_eq!(record.ttl.get(), long, "{name}: {stands:?}");
        assert_ne!(Some(record.version), adopted.entry().map(|adopted| adopted.version), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn observation_does_not_continue_across_a_fail_over() {
    let mut pair = Pair::start().await;
    let (leader, observer) = (pair.open().await, pair.open().await);
    let (first, second) = (entry(5, 1, TTL), entry(5, 2, TTL));
    claimed(&leader, "slot", &VACANT, &first).await;
    let observed = peeked(&observer, "slot").await;
    pair.cut().await;
    // The renewal is forgotten: the version that the observer has seen stands again, as old as it was.
    assert_eq!(leader.commit(slot_of("slot"), Step::renew(&first, &second)).await.unwrap(), Done::Applied);
    pair.fail_over();
    let stands = refused_claim(&observer, "slot", &observed, &entry(6, 1, TTL)).await;
    assert!(is_waiting(&stands, 5) && stands != observed, "{stands:?}");
    assert_eq!(peeked(&observer, "slot").await, stands);
    // A look alone shows it, too.
    let newcomer = pair.open().await;
    assert_eq!(peeked(&newcomer, "slot").await, stands);
}

#[tokio::test(flavor = "multi_thread")]
async fn look_after_a_fail_over_shows_a_new_version_and_no_smaller_epoch() {
    let mut pair = Pair::start().await;
    let (leader, observer) = (pair.open().await, pair.open().await);
    vacated(&leader, "slot", 5).await;
    assert_eq!(peeked(&observer, "slot").await, vacant(5));
    pair.cut().await;
    claimed(&leader, "slot", &vacant(5), &entry(6, 1, TTL)).await;
    assert_eq!(peeked(&observer, "slot").await.last_epoch(), Epoch::new(6).ok());
    pair.fail_over();
    // The plain look adopts: no candidate sees epoch 5 again.
    let stands = peeked(&observer, "slot").await;
    assert!(is_waiting(&stands, 6), "{stands:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn epoch_is_not_given_out_again() {
    let mut pair = Pair::start().await;
    let leader = pair.open().await;
    vacated(&leader, "slot", 5).await;
    pair.cut().await;
    // As elections choose it, with a clock that is hours ahead.
    let wall = client(&pair.primary).await;
    let millis = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint::text";
    let hours_ahead: u64 = text(&wall, millis).await.parse::<u64>().unwrap() + 23 * 3_600_000;
    claimed(&leader, "slot", &vacant(5), &entry(hours_ahead, 1, TTL)).await;
    pair.fail_over();
    let stands = refused_claim(&pair.open().await, "slot", &vacant(5), &entry(6, 1, TTL)).await;
    assert!(stands.last_epoch().unwrap().get() > hours_ahead, "{stands:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_of_the_old_history_is_replaced() {
    let mut pair = Pair::start().await;
    let leader = pair.open().await;
    let held = entry(5, 1, TTL);
    claimed(&leader, "slot", &VACANT, &held).await;
    pair.cut().await;
    pair.fail_over();
    // The row is there, as it was written. Only the server's history shows that it is another server.
    let fence = Fence { epoch: held.epoch, incarnation: held.incarnation(), after: DocumentVersion::NONE };
    let batch = leader.commit(slot_of("slot"), Step::batch(&fence, &[])).await;
    assert!(matches!(batch, Err(WriteError::Replaced(_))), "{batch:?}");
    let renewal = leader.commit(slot_of("slot"), Step::renew(&held, &entry(5, 2, TTL))).await;
    assert!(matches!(renewal, Err(WriteError::Replaced(_))), "{renewal:?}");
    let release = leader.commit(slot_of("slot"), Step::release(held.incarnation(), held.epoch)).await;
    assert!(matches!(release, Err(WriteError::Replaced(_))), "{release:?}");
    // After another candidate has adopted the history, the record itself is another one.
    let stands = refused_claim(&pair.open().await, "slot", &VACANT, &entry(6, 1, TTL)).await;
    let Ok(Done::Refused(Shown::Slot(shown))) = ({
        peeked(&leader, "slot").await;
        leader.commit(slot_of("slot"), Step::renew(&held, &entry(5, 2, TTL))).await
    }) else {
        panic!("renewed")
    };
    assert_eq!(shown, stands);
}

#[tokio::test(flavor = "multi_thread")]
async fn standbys_that_are_promoted_independently_are_told_apart() {
    let mut pair = Pair::start().await;
    let mut other = pair.primary.standby().unwrap();
    let held = entry(5, 1, TTL);
    claimed(&pair.open().await, "slot", &VACANT, &held).await;
    // Adoption leaves requests of operators as they are.
    let (pause, paused) = (Partition::from_bytes(*b"\x03name"), held.clone());
    assert_eq!(
        pair.open().await.commit(pause.clone(), Step::claim(&VACANT, &paused)).await.unwrap(),
        Done::Applied
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
    let leader = PostgresStorage::open(&url).await.unwrap();
    let stands = refused_claim(&leader, "slot", &VACANT, &held).await;
    let held = entry(stands.last_epoch().unwrap().get() + 1, 1, TTL);
    claimed(&leader, "slot", &stands, &held).await;
    // … which is not seen on the other one, although both are on the same timeline of the same system.
    // There, another candidate has adopted the history: the witness alone differs.
    other.kill().unwrap();
    let newcomer = PostgresStorage::open(&pair.standby.url("postgres")).await.unwrap();
    peeked(&newcomer, "slot").await;
    let renewal = leader.commit(slot_of("slot"), Step::renew(&held, &entry(held.epoch.get(), 2, TTL))).await;
    assert!(matches!(renewal, Err(WriteError::Replaced(_))), "{renewal:?}");
    // This row is the same on both: the witness in the statement alone tells.
    let replaced = leader.commit(pause, Step::renew(&paused, &entry(5, 2, TTL))).await;
    assert!(matches!(replaced, Err(WriteError::Replaced(_))), "{replaced:?}");
    let stands = refused_claim(&leader, "slot", &stands, &entry(held.epoch.get() + 1, 1, TTL)).await;
    assert!(is_waiting(&stands, held.epoch.get()), "{stands:?}");
}

// Elections across an outage and a fail-over, by the clock.

fn key() -> ElectionKey {
    ElectionKey { cluster: "outage".into(), slot: SlotNumber::new(NonZeroU32::MIN) }
}

async fn process(url: &str, clock: &Arc<dyn Clock>) -> Process<ElectionKey> {
    let storage = ElectionsTtlStorage::new(Arc::new(PostgresStorage::open(url).await.unwrap()));
    Process::start(Arc::new(storage), Arc::clone(clock))
}

fn candidacy(holder: &str, ttl: Duration) -> Candidacy<ElectionKey> {
    Candidacy { slots: vec![key()], terms: Terms::new(Holder::new(holder).unwrap(), Ttl::new(ttl).unwrap()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_survives_a_restart_of_the_server_within_its_lease() {
    let mut server = start(&[]);
    let url = server.url("postgres");
    init_storage(&url).await.unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start().unwrap());
    let process = process(&url, &clock).await;
    let ttl = Duration::from_secs(10);
    let (_, leadership) = process.elections.acquire(candidacy("leader", ttl)).await.unwrap();
    let standing = leadership.standing().clone();
    for _ in 0..3 {
        let kill_at = standing.kill_at();
        server.restart().unwrap();
        // Renewed on a new connection.
        while standing.kill_at() == kill_at {
            assert!(standing.loss().is_none(), "lost by an outage shorter than the lease");
            clock.sleep(Duration::from_millis(20)).await;
        }
    }
    leadership.release().await;
    process.elections.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fail_over_ends_the_leader_and_makes_a_successor_after_the_largest_ttl() {
    let mut pair = Pair::start().await;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start().unwrap());
    let (first, second) = (process(&pair.url(), &clock).await, process(&pair.url(), &clock).await);
    pair.cut().await;
    // The claim and all renewals are forgotten.
    let (_, leadership) = first.elections.acquire(candidacy("first", TTL)).await.unwrap();
    let standing = leadership.standing().clone();
    let epoch = standing.epoch();
    pair.fail_over();
    let promoted_at = clock.now();
    let (_, successor) = second.elections.acquire(candidacy("second", TTL)).await.unwrap();
    let acquired_at = clock.now();
    assert!(acquired_at >= promoted_at.after(TTL), "led before the largest TTL had passed");
    assert!(standing.loss().is_some() && standing.kill_at() <= acquired_at, "two leaders at work");
    assert!(successor.standing().epoch() > epoch);
    leadership.release().await;
    successor.release().await;
    first.elections.cleanup().await;
    second.elections.cleanup().await;
}

// Synchronous replication: what a cancelled wait leaves on the primary alone is not taken for written.

const WAITING: &str = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'vvm'";

async fn make_synchronous(client: &Client) {
    client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'").await.unwrap();
    client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    while text(client, "SHOW synchronous_standby_names").await != "standby" {
        tokio::task::yield_now().await;
    }
}

/// Opens the storage with a short time limit, which even the primary may miss on a busy machine.
async fn hasty(pair: &Pair) -> PostgresStorage {
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
    let mut pair = Pair::start().await;
    let patient = pair.open().await;
    let names = ["one", "two"];
    for name in names {
        claimed(&patient, name, &VACANT, &entry(5, 1, TTL)).await;
    }
    let storage = hasty(&pair).await;
    let other = client(&pair.primary).await;
    make_synchronous(&other).await;
    pair.cut().await;
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
    let mut pair = Pair::start().await;
    let storage = Arc::new(pair.open().await);
    let held = entry(5, 1, TTL);
    claimed(&storage, "slot", &VACANT, &held).await;
    let other = client(&pair.primary).await;
    make_synchronous(&other).await;
    pair.cut().await;

    // The commit waits for the standby. Cancelled, it is answered with success, and a warning.
    let renewed = entry(5, 2, TTL);
    let renewal = tokio::spawn({
        let (storage, held, renewed) = (Arc::clone(&storage), held.clone(), renewed.clone());
        async move { storage.commit(slot_of("slot"), Step::renew(&held, &renewed)).await }
    });
    while other.query(&format!("SELECT pg_cancel_backend(pid) {WAITING}"), &[]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let renewal = renewal.await.unwrap();
    let Err(WriteError::Unknown(cause)) = renewal else { panic!("{renewal:?}") };
    assert!(cause.to_string().contains("standby"), "{cause}");

    // A plain look shows it. What confirms a write does not, before a standby has it.
    assert_eq!(peeked(&storage, "slot").await.entry(), Some(&renewed));
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
