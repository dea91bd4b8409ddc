//! Fail-over by observation, whatever the servers' clocks say: on a cluster whose nodes agree on the time, and on one where
//! a node is ahead of the others.
//!
//! `cargo xtask test-drivers` runs this with `VVM_TEST_SCYLLA=host:port` and, with `--ahead`, `VVM_TEST_SCYLLA_AHEAD`, by
//! how many seconds a node is ahead.
#![cfg(feature = "scylla")]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use ::scylla::{
    client::{session::Session, session_builder::SessionBuilder},
    policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy},
    statement::{Consistency, unprepared::Statement},
    value::CqlTimestamp,
};
use clock::{Clock, Instant, SystemClock};
use ielections::{
    Candidacy, Epoch, Holder, Slot, Terms, Timing, Ttl, TtlStorage, testing::elections_suite::Process,
};
use std::{env, num::NonZeroU32, sync::Arc, time::Duration};
use vvm_storage::{
    ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, init_storage, scylla::ScyllaStorage,
};

/// How many crashes.
const ROUNDS: u32 = 5;

/// Between two looks at what stands there.
const LOOK: Duration = Duration::from_millis(50);

fn contact_points() -> String {
    env::var("VVM_TEST_SCYLLA").expect(
        "VVM_TEST_SCYLLA=host:port says where a cluster is; `cargo xtask test-drivers --only scylla` starts one",
    )
}

async fn session() -> Session {
    SessionBuilder::new().known_nodes(contact_points().split(',')).build().await.unwrap()
}

/// What time it is by each node's clock, in milliseconds.
async fn wall_clocks(session: &Session) -> Vec<i64> {
    let mut clocks = Vec::new();
    for node in session.get_cluster_state().get_nodes_info() {
        let mut read = Statement::new("SELECT toTimestamp(now()) FROM system.local");
        let this_node = NodeIdentifier::Node(Arc::clone(node));
        read.set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(this_node, None)));
        read.set_consistency(Consistency::One);
        let rows = session.query_unpaged(read, ()).await.unwrap().into_rows_result().unwrap();
        clocks.push(rows.single_row::<(CqlTimestamp,)>().unwrap().0.0);
    }
    clocks
}

async fn storage(url: &str) -> Arc<dyn TtlStorage<ElectionKey>> {
    Arc::new(ElectionsTtlStorage::new(Arc::new(ScyllaStorage::open(url).await.unwrap())))
}

fn candidacy(key: &ElectionKey, holder: &str, ttl: Ttl) -> Candidacy<ElectionKey> {
    Candidacy { slots: vec![key.clone()], terms: Terms::new(Holder::new(holder).unwrap(), ttl) }
}

/// A crash, with a standby that watches: nobody leads before the record has stood for its TTL since it was sent (I5), and
/// somebody does within 1.05 TTL and a second of the crash. Every call goes to whichever node it happens to, and so do
/// renewals of one leadership: ballots of all nodes meet in one record.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_follows_a_crash_neither_early_nor_late() {
    let session = session().await;
    let clocks = wall_clocks(&session).await;
    let ahead: i64 = env::var("VVM_TEST_SCYLLA_AHEAD").map_or(0, |ahead| ahead.parse().unwrap());
    let spread = clocks.iter().max().unwrap() - clocks.iter().min().unwrap();
    // Nodes are asked one after another.
    assert!(spread >= ahead * 1000 - 500, "clocks are not {ahead} s apart: {clocks:?}");
    let copies = clocks.len().min(3);
    let url = format!("scylla://{}/vvm_test_suites_{copies}?replication={copies}", contact_points());
    init_storage(&url).await.unwrap();

    let ttl = Ttl::new(Duration::from_secs(5)).unwrap();
    let longest = ttl.get() * 105 / 100 + Duration::from_secs(1);
    let clock = SystemClock::start().unwrap();
    let reader = storage(&url).await;
    let mut name = [0; 12];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").unwrap(), &mut name).unwrap();
    let key = ElectionKey { cluster: ClusterName::new(name), slot: SlotNumber::new(NonZeroU32::MIN) };

    let start = async |holder: &str| {
        let process = Process::start(storage(&url).await, Arc::new(clock.clone()));
        let elections = Arc::clone(&process.elections);
        let candidacy = candidacy(&key, holder, ttl);
        let leading = tokio::spawn(async move { elections.acquire(candidacy).await.unwrap().1 });
        (process, leading)
    };
    let (mut process, leading) = start("round 0").await;
    let mut leadership = leading.await.unwrap();
    let mut epoch: Option<Epoch> = None;
    let (mut round, mut lost) = (1, 0);
    while round <= ROUNDS {
        let (next, leading) = start(&format!("round {round}")).await;
        // Renewals go on while the standby watches.
        let renewed = leadership.standing().kill_at();
        let is_lost = || leadership.standing().loss().is_some();
        while leadership.standing().kill_at() == renewed && !is_lost() {
            clock.sleep(ttl.get() / 50).await;
        }
        clock.sleep(ttl.get() / 2).await;
        if is_lost() {
            // No renewal for two thirds of a TTL: the machine stood still, and the standby follows of its own accord.
            lost += 1;
            assert!(lost < ROUNDS, "lost again and again: {:?}", leadership.standing().loss());
            leadership.release().await;
            (process, leadership) = (next, leading.await.unwrap());
            continue;
        }
        assert!(!leading.is_finished(), "two leaders in round {round}");
        assert!(Some(leadership.epoch()) > epoch, "epochs rise");
        epoch = Some(leadership.epoch());

        process.crash();
        let crashed_at = clock.now();
        // When the write was sent that the record stands by (I3); a later one may have been on its way.
        let kill_after = Timing::of(ttl).kill_at(Instant::ORIGIN).since(Instant::ORIGIN);
        let sent_at = leadership.standing().kill_at().before(kill_after);
        drop(leadership);
        // How late answers and wake-ups are on a machine that others use, too. Linearizable reads stop before the claim:
        // they are transactions, and would be in its way.
        let (mut slack, mut looks) = (Duration::ZERO, 0);
        // A renewal that was on its way may have been applied after the crash.
        let (mut last, mut landed_at) = (None, crashed_at);
        while !leading.is_finished() {
            let asked_at = clock.now();
            let stands = if asked_at < sent_at.after(ttl.get() * 9 / 10) {
                reader.get(&key).await
            } else {
                reader.scan(std::slice::from_ref(&key)).await.map(|mut slots| slots.remove(0))
            };
            assert!(
                !matches!(stands, Ok(Slot::Vacant(_))),
                "a record that nobody released is gone: {stands:?}"
            );
            looks += 1;
            if let Ok(Slot::Held { entry, .. }) = stands
                && asked_at < sent_at.after(ttl.get() * 9 / 10)
                && last.replace(entry.version) != Some(entry.version)
            {
                landed_at = clock.now();
            }
            clock.sleep(LOOK).await;
            slack = slack.max(clock.now().since(asked_at.after(LOOK)));
        }
        assert!(looks > 10, "hardly looked: {looks}");
        leadership = leading.await.unwrap();
        let took = clock.now().since(crashed_at);
        let landed = landed_at.since(crashed_at);
        println!(
            "round {round}: led {took:?} after the crash, the last renewal was there {landed:?} after it; \
             clocks {spread} ms apart, machine {slack:?} late"
        );
        assert!(clock.now() >= sent_at.after(ttl.get()), "taken before its TTL");
        // It looks, learns, waits, claims: each may be late.
        let late = landed + slack * 4;
        assert!(took <= longest + late, "{took:?} is longer than {longest:?}, and the machine {late:?} late");
        process = next;
        round += 1;
    }
    leadership.release().await;
    drop(process);
}
