//! Replicas that accept writes after their source has ended, or while it was away: on servers that each test starts.
//!
//! A replica that stops before the source's last writes has forgotten them.

use super::{TTL, VACANT, entry, refused, slot_of, started};
use ielections::{Entry, Epoch, Fence, Slot, Vacant, WriteError, documents::DocumentVersion};
use servers::mysql::MariaDb;
use vvm_storage::{Done, Shown, Step, SysVvmStorage, init_storage, mysql::MySqlStorage};

/// The bound of all TTLs here.
const OPTIONS: &str = "max_ttl=2s&request_timeout=4s";

/// A source and a replica of it.
struct Pair {
    source: MariaDb,
    replica: MariaDb,
}

impl Pair {
    /// With the storage ready.
    async fn start() -> Self {
        let mut source = started(&[]);
        init_storage(&format!("{}?{OPTIONS}", source.url("elections"))).await.unwrap();
        let replica = source.replica().unwrap();
        Self { source, replica }
    }

    /// Both hosts, the source first.
    fn url(&self) -> String {
        let (first, second) = (self.source.address(), self.replica.address());
        format!("mysql://root@{first},{second}/elections?{OPTIONS}")
    }

    async fn open(&self) -> MySqlStorage {
        MySqlStorage::open(&self.url()).await.unwrap()
    }

    /// Cuts the replica off once it has all that was written so far.
    fn cut(&self) {
        let position = self.source.client("").unwrap().ask("SELECT @@gtid_binlog_pos").unwrap();
        let wait = format!("SELECT MASTER_GTID_WAIT('{}', 60)", position[0][0]);
        assert_eq!(self.replica.client("").unwrap().ask(&wait).unwrap(), [["0"]]);
        self.replica.statement("STOP SLAVE").unwrap();
    }

    /// Ends the source and lets the replica accept writes.
    fn fail_over(&mut self) {
        self.source.kill().unwrap();
        self.replica.promote().unwrap();
    }
}

fn vacant(epoch: u64) -> Slot {
    Slot::Vacant(Vacant { last_epoch: Some(Epoch::new(epoch).unwrap()) })
}

async fn claimed(storage: &MySqlStorage, name: &str, from: &Slot, entry: &Entry) {
    assert_eq!(storage.commit(slot_of(name), Step::claim(from, entry)).await.unwrap(), Done::Applied);
}

/// Claims a slot and releases it.
async fn vacated(storage: &MySqlStorage, name: &str, epoch: u64) {
    let held = entry(epoch, 1, TTL);
    claimed(storage, name, &VACANT, &held).await;
    storage.commit(slot_of(name), Step::release(held.incarnation(), held.epoch)).await.unwrap();
}

async fn peeked(storage: &MySqlStorage, name: &str) -> Slot {
    storage.peek(&[slot_of(name)]).await.unwrap().remove(0)
}

/// What stands in a slot under which a forgotten leader may be at work: a record of no leader, which standbys observe for the
/// largest TTL.
fn is_waiting(slot: &Slot, forgotten: u64) -> bool {
    slot.entry().is_some_and(|entry| entry.ttl.get() == TTL && entry.epoch.get() > forgotten)
}

async fn refused_claim(storage: &MySqlStorage, name: &str, from: &Slot, entry: &Entry) -> Slot {
    match storage.commit(slot_of(name), Step::claim(from, entry)).await.unwrap() {
        Done::Refused(Shown::Slot(stands)) => stands,
        other => panic!("{name}: {other:?} although a forgotten leader may be at work"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slot_whose_claim_was_forgotten_is_waited_for() {
    let mut pair = Pair::start().await;
    let error = refused(&pair.replica.url("elections")).await;
    assert!(error.to_string().contains("is read-only") && error.is_passing(), "{error}");
    let leader = pair.open().await;
    vacated(&leader, "released", 5).await;
    pair.cut();
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
    claimed(&after, "released", &stands, &entry(stands.last_epoch().unwrap().get() + 1, 1, TTL)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_of_the_old_history_is_replaced_and_a_look_adopts() {
    let mut pair = Pair::start().await;
    let (leader, observer) = (pair.open().await, pair.open().await);
    let (held, next) = (entry(5, 1, TTL), entry(5, 2, TTL));
    claimed(&leader, "slot", &VACANT, &held).await;
    let observed = peeked(&observer, "slot").await;
    pair.cut();
    // The renewal is forgotten: the version that the observer has seen stands again.
    assert_eq!(leader.commit(slot_of("slot"), Step::renew(&held, &next)).await.unwrap(), Done::Applied);
    pair.fail_over();
    // The row is there, as it was written. Only the server shows that it is another one.
    let fence = Fence { epoch: held.epoch, incarnation: held.incarnation(), after: DocumentVersion::NONE };
    for step in
        [Step::batch(&fence, &[]), Step::renew(&held, &next), Step::release(held.incarnation(), held.epoch)]
    {
        // The connection to the old server ends first.
        let written = loop {
            match leader.commit(slot_of("slot"), step.clone()).await {
                Err(WriteError::Unknown(_) | WriteError::NotApplied(_)) => {}
                written => break written,
            }
        };
        assert!(matches!(written, Err(WriteError::Replaced(_))), "{step:?}: {written:?}");
    }
    let stands = peeked(&observer, "slot").await;
    assert!(is_waiting(&stands, 5) && stands != observed, "{stands:?}");
    assert_eq!(peeked(&pair.open().await, "slot").await, stands);
}

#[tokio::test(flavor = "multi_thread")]
async fn largest_ttl_that_the_promoted_server_forgot_is_waited_for() {
    let mut pair = Pair::start().await;
    let long = std::time::Duration::from_secs(9);
    let raised = pair.url().replace("max_ttl=2s", "max_ttl=9s");
    pair.cut();
    init_storage(&raised).await.unwrap();
    let leader = pair.open().await;
    claimed(&leader, "old", &VACANT, &entry(5, 1, long)).await;
    pair.fail_over();
    let early = pair.open().await;
    assert!(is_waiting(&refused_claim(&early, "old", &VACANT, &entry(6, 1, TTL)).await, 5));
    // The handle that knows it makes all wait anew.
    for candidate in [&leader, &early] {
        let stands = refused_claim(candidate, "old", &VACANT, &entry(6, 1, TTL)).await;
        assert_eq!(stands.entry().unwrap().ttl.get(), long, "{stands:?}");
    }
}

/// The former source comes back as it was, with the name that its own history has. A process that saw the later one tells it.
#[tokio::test(flavor = "multi_thread")]
async fn switch_back_to_a_former_source_that_lags_is_another_history_for_who_saw_the_later_one() {
    let mut pair = Pair::start().await;
    let witness = pair.open().await;
    vacated(&witness, "slot", 5).await;
    pair.cut();
    pair.fail_over();
    let waiting = refused_claim(&witness, "slot", &vacant(5), &entry(6, 1, TTL)).await;
    let epoch = waiting.last_epoch().unwrap().get();
    let leader = entry(epoch + 1, 1, TTL);
    claimed(&witness, "slot", &waiting, &leader).await;
    pair.source.restart().unwrap();
    pair.replica.kill().unwrap();
    let renewal = loop {
        match witness.commit(slot_of("slot"), Step::renew(&leader, &entry(epoch + 1, 2, TTL))).await {
            Err(WriteError::Unknown(_) | WriteError::NotApplied(_)) => {}
            renewal => break renewal,
        }
    };
    assert!(matches!(renewal, Err(WriteError::Replaced(_))), "{renewal:?}");
    let stands = peeked(&witness, "slot").await;
    assert!(is_waiting(&stands, epoch + 1), "{stands:?}");
    // One that opens now sees what was adopted.
    assert_eq!(peeked(&pair.open().await, "slot").await, stands);
}

/// After a restore, an operator makes the storage wait.
#[tokio::test(flavor = "multi_thread")]
async fn history_whose_server_is_cleared_is_adopted_anew() {
    let server = started(&[]);
    let url = format!("{}?{OPTIONS}", server.url("elections"));
    init_storage(&url).await.unwrap();
    let storage = MySqlStorage::open(&url).await.unwrap();
    vacated(&storage, "slot", 5).await;
    server.statement("UPDATE elections.sysvvm_history SET server = ''").unwrap();
    let stands = refused_claim(&storage, "slot", &vacant(5), &entry(6, 1, TTL)).await;
    assert!(is_waiting(&stands, 6), "{stands:?}");
}
