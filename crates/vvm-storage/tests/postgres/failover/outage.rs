//! Elections across an outage and a fail-over: by the clock.

use super::{Pair, TTL, start};
use ielections::{Candidacy, Holder, Terms, Ttl, testing::elections_suite::Process};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use vvm_clock::{Clock, SystemClock};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber, init_storage, postgres::PostgresStorage};

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
