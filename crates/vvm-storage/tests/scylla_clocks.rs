//! Fail-over does not depend on the clocks of servers: tested on a cluster whose nodes agree on the time, and
//! on one with a node whose clock is ahead.
//!
//! `cargo xtask test-drivers` runs this with `VVM_TEST_SCYLLA=host:port` and, with `--ahead`,
//! `VVM_TEST_SCYLLA_AHEAD`, the number of seconds that the clock of one node is ahead.
#![cfg(feature = "scylla")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

use ::scylla::{
    client::{session::Session, session_builder::SessionBuilder},
    cluster::Node,
    policies::{
        load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy},
        retry::FallthroughRetryPolicy,
    },
    statement::{Consistency, SerialConsistency, unprepared::Statement},
    value::CqlTimestamp,
};
use ::timed::{Attempt, Late};
use ielections::{
    Candidacy, Epoch, Holder, Leadership, Slot, Terms, Timing, Ttl, TtlStorage,
    testing::elections_suite::Process,
};
use std::{env, num::NonZeroU32, sync::Arc, time::Duration};
use tokio::task::JoinHandle;
use vvm_clock::{Clock, Instant, SystemClock};
use vvm_storage::{
    ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, init_storage, scylla::ScyllaStorage,
};

/// The number of crashes.
const ROUNDS: u32 = 5;

/// How long a healthy cluster takes to answer the canary.
const CANARY_BOUND: Duration = Duration::from_millis(100);

/// The interval between two reads of the record.
const LOOK: Duration = Duration::from_millis(50);

fn contact_points() -> String {
    env::var("VVM_TEST_SCYLLA").expect(
        "set VVM_TEST_SCYLLA=host:port, or run `cargo xtask test-drivers --only scylla`, which starts a \
         cluster",
    )
}

async fn session() -> Session {
    SessionBuilder::new().known_nodes(contact_points().split(',')).build().await.unwrap()
}

/// Returns a statement that is sent only to `node`.
fn statement_for(node: &Arc<Node>, text: &str) -> Statement {
    let mut statement = Statement::new(text);
    let this_node = NodeIdentifier::Node(Arc::clone(node));
    statement.set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(this_node, None)));
    statement
}

/// Returns how many seconds the clock of one node is ahead.
fn ahead() -> i64 {
    env::var("VVM_TEST_SCYLLA_AHEAD").map_or(0, |ahead| ahead.parse().unwrap())
}

/// Returns what each node's clock showed when this function began, in milliseconds. Nodes are asked one after
/// another. Each figure is too early by at most the time of its answer.
async fn wall_clocks(session: &Session) -> Vec<i64> {
    let (began, mut clocks) = (SystemClock::read(), Vec::new());
    for node in session.get_cluster_state().get_nodes_info() {
        let mut read = statement_for(node, "SELECT toTimestamp(now()) FROM system.local");
        read.set_consistency(Consistency::One);
        let rows = session.query_unpaged(read, ()).await.unwrap().into_rows_result().unwrap();
        let shows = rows.single_row::<(CqlTimestamp,)>().unwrap().0.0;
        clocks.push(shows - SystemClock::read().since(began).as_millis() as i64);
    }
    clocks
}

fn url(copies: usize) -> String {
    format!("scylla://{}/vvm_test_suites_{copies}?replication={copies}", contact_points())
}

fn random_name() -> [u8; 12] {
    let mut name = [0; 12];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").unwrap(), &mut name).unwrap();
    name
}

async fn storage(url: &str) -> Arc<dyn TtlStorage<ElectionKey>> {
    Arc::new(ElectionsTtlStorage::new(Arc::new(ScyllaStorage::open(url).await.unwrap())))
}

fn candidacy(key: &ElectionKey, holder: &str, ttl: Ttl) -> Candidacy<ElectionKey> {
    Candidacy { slots: vec![key.clone()], terms: Terms::new(Holder::new(holder).unwrap(), ttl) }
}

/// Every node completes transactions on one row, each with a ballot of its own clock, and a node whose clock
/// is ahead answers the others. With the default `internode_timeout` it would regard all their requests as
/// expired.
#[tokio::test]
async fn every_node_completes_transactions() {
    const EACH: usize = 10;
    let session = session().await;
    let cluster = session.get_cluster_state();
    let nodes = cluster.get_nodes_info();
    let copies = nodes.len().min(3);
    let table = format!("vvm_test_suites_{copies}.clocks");
    init_storage(&url(copies)).await.unwrap();
    let create = format!("CREATE TABLE IF NOT EXISTS {table} (pk blob PRIMARY KEY, turn int)");
    session.query_unpaged(create, ()).await.unwrap();
    session.await_schema_agreement().await.unwrap();
    let (key, began) = (random_name(), SystemClock::read());
    let mut answered = vec![0; nodes.len()];
    // Round-robin: a ballot of the clock that is ahead precedes each of the others.
    for turn in 0..EACH * nodes.len() {
        let node = turn % nodes.len();
        let text = format!("UPDATE {table} SET turn = ? WHERE pk = ? IF turn != ?");
        let mut swap = statement_for(&nodes[node], &text);
        swap.set_consistency(Consistency::Quorum);
        swap.set_serial_consistency(Some(SerialConsistency::Serial));
        swap.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
        match session.query_unpaged(swap, (turn as i32, &key[..], turn as i32)).await {
            Ok(answer) => {
                assert_eq!(answer.request_coordinator().node().host_id, nodes[node].host_id);
                answered[node] += 1;
            }
            Err(error) => println!("turn {turn}, node {node}: {error}"),
        }
    }
    println!("answered of {EACH} by each node: {answered:?}, in {:?}", SystemClock::read().since(began));
    // On a busy machine, some may time out.
    assert!(answered.iter().all(|answered| *answered >= EACH / 2), "{answered:?}");
    if ahead() == 0 {
        // ScyllaDB does not count expired messages.
        return;
    }
    for node in nodes {
        let (received, expired) = received_and_expired(&session, node).await;
        println!("{:?} received {received} messages, {expired} of them expired", node.address);
        assert!(received > 0 && expired * 10 <= received, "{expired} of {received}");
    }
}

/// Returns how many messages of other nodes a node of Cassandra has received, and how many of them had
/// expired.
async fn received_and_expired(session: &Session, node: &Arc<Node>) -> (i64, i64) {
    let mut read = statement_for(
        node,
        "SELECT sum(received_count), sum(expired_count) FROM system_views.internode_inbound",
    );
    read.set_consistency(Consistency::One);
    session.query_unpaged(read, ()).await.unwrap().into_rows_result().unwrap().single_row().unwrap()
}

/// The name of this test, and a reader of its record.
struct Election {
    url: String,
    key: ElectionKey,
    reader: Arc<dyn TtlStorage<ElectionKey>>,
    clock: SystemClock,
    epoch: Option<Epoch>,
}

impl Election {
    async fn on_the_cluster() -> Self {
        let session = session().await;
        let clocks = wall_clocks(&session).await;
        let ahead = ahead();
        let spread = clocks.iter().max().unwrap() - clocks.iter().min().unwrap();
        println!("clocks are {spread} ms apart");
        assert!(spread >= ahead * 1000 - 500, "clocks are not {ahead} s apart: {clocks:?}");
        let url = url(clocks.len().min(3));
        init_storage(&url).await.unwrap();
        let slot = SlotNumber::new(NonZeroU32::MIN);
        let key = ElectionKey { cluster: ClusterName::new(random_name()), slot };
        let (reader, clock) = (storage(&url).await, SystemClock::start().unwrap());
        Self { url, key, reader, clock, epoch: None }
    }

    async fn candidate(&self, holder: &str) -> (Arc<Process<ElectionKey>>, JoinHandle<Leadership>) {
        let process = Arc::new(Process::start(storage(&self.url).await, Arc::new(self.clock.clone())));
        let (candidate, candidacy) = (Arc::clone(&process), candidacy(&self.key, holder, ttl()));
        let leading = tokio::spawn(async move { candidate.elections.acquire(candidacy).await.unwrap().1 });
        (process, leading)
    }

    /// Crashes a leader that has a standby. No candidate leads before the TTL has passed since the record was
    /// sent (I5). The standby leads within 1.05 TTL and a second after the crash. Each call may go to any
    /// node, so one record has ballots of all nodes.
    async fn crash(&mut self, attempt: &Attempt) -> Result<(), Late> {
        let (ttl, clock) = (ttl().get(), self.clock.clone());
        let (process, leading) = self.candidate("leader").await;
        let leadership = leading.await.unwrap();
        assert!(Some(leadership.epoch()) > self.epoch, "epochs rise");
        let (standby, leading) = self.candidate("standby").await;
        // Renewals continue while the standby observes.
        let kill_after = Timing::of(self::ttl()).kill_at(Instant::ORIGIN).since(Instant::ORIGIN);
        let sent_at = || leadership.standing().kill_at().before(kill_after);
        let first = sent_at();
        let watched_until = clock.now().after(ttl);
        while sent_at() == first || clock.now() < watched_until {
            if leadership.standing().loss().is_some() {
                // On a machine that keeps up, the first attempt at a renewal is answered by then.
                attempt.took("a renewal", ttl * 35 / 100, sent_at())?;
                panic!("lost: {:?}", leadership.standing().loss());
            }
            clock.sleep(LOOK).await;
        }
        assert!(!leading.is_finished(), "two leaders");
        process.crash();
        let (crashed_at, sent_at) = (clock.now(), sent_at());
        drop(leadership);
        // A renewal in flight may be applied after the crash. Linearizable reads are transactions and would
        // disturb the claim, so they stop before it.
        let (mut last, mut landed_at) = (None, crashed_at);
        while !leading.is_finished() {
            let asked_at = clock.now();
            let before_the_claim = asked_at < sent_at.after(ttl * 9 / 10);
            let stands = if before_the_claim {
                self.reader.get(&self.key).await
            } else {
                self.reader.scan(std::slice::from_ref(&self.key)).await.map(|mut slots| slots.remove(0))
            };
            assert!(!matches!(stands, Ok(Slot::Vacant(_))), "an unreleased record disappeared: {stands:?}");
            if let Ok(Slot::Held { entry, .. }) = stands
                && before_the_claim
                && last.replace(entry.version) != Some(entry.version)
            {
                landed_at = clock.now();
            }
            clock.sleep(LOOK).await;
        }
        let leadership = leading.await.unwrap();
        let took = clock.now().since(crashed_at);
        assert!(clock.now() >= sent_at.after(ttl), "taken before its TTL");
        let longest = ttl * 105 / 100 + Duration::from_secs(1);
        attempt.reported("the take-over", longest + landed_at.since(crashed_at), took, crashed_at)?;
        assert!(Some(leadership.epoch()) > self.epoch, "epochs rise");
        self.epoch = Some(leadership.epoch());
        leadership.release().await;
        drop(standby);
        Ok(())
    }
}

fn ttl() -> Ttl {
    Ttl::new(Duration::from_secs(5)).unwrap()
}

/// Measures the cluster with reads of an unused name, on a separate connection.
fn watch(attempt: &Attempt, url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reader = runtime.block_on(storage(url));
    let slot = SlotNumber::new(NonZeroU32::MIN);
    let key = ElectionKey { cluster: ClusterName::new(random_name()), slot };
    attempt.watch("canary", CANARY_BOUND, move || {
        // An error is an answer, too.
        let _answer = runtime.block_on(reader.get(&key));
    });
}

mod timed {
    use super::*;

    #[test]
    fn standby_leads_after_a_crash_neither_early_nor_late() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let mut election = runtime.block_on(Election::on_the_cluster());
        for round in 1..=ROUNDS {
            ::timed::timed(&format!("crash {round}"), |attempt| {
                watch(attempt, &election.url);
                runtime.block_on(election.crash(attempt))
            });
        }
    }
}
