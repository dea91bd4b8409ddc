//! Notifications as hints: between handles that share nothing but the server.

use super::{TTL, client, entry, fresh_database, url};
use ielections::{Claim, Incarnation, TtlStorage, Vacant};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;
use tokio_postgres::Client;
use vvm_storage::{
    Ask, ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, init_storage, postgres::PostgresStorage,
};

/// More than a hint takes, on any machine.
const LONG: Duration = Duration::from_secs(20);

/// For a hint that must not come. One that comes later is not noticed.
pub(super) const SHORT: Duration = Duration::from_millis(300);

const OURS: &str = "FROM pg_stat_activity WHERE application_name = 'vvm' AND datname = current_database()";

/// A database, and a connection past the driver.
struct Place {
    url: String,
    client: Client,
}

impl Place {
    async fn new() -> Self {
        let database = fresh_database().await;
        init_storage(&url(&database)).await.unwrap();
        Self { url: url(&database), client: client(&database).await }
    }

    async fn open(&self) -> ElectionsTtlStorage {
        ElectionsTtlStorage::new(Arc::new(PostgresStorage::open(&self.url).await.unwrap()))
    }

    /// A handle that listens.
    async fn listening(&self, cluster: &ClusterName) -> ElectionsTtlStorage {
        let storage = self.open().await;
        assert!(!storage.listens(cluster));
        // The first one comes when the server listens.
        timeout(LONG, storage.hinted(cluster)).await.unwrap();
        assert!(storage.listens(cluster));
        storage
    }

    async fn connections(&self) -> i64 {
        self.client.query_one(&format!("SELECT count(*) {OURS}"), &[]).await.unwrap().get(0)
    }
}

fn ask() -> Ask {
    Ask { incarnation: Incarnation::from_bytes([8; 16]), since_unix_epoch: Duration::ZERO }
}

pub(super) fn key(name: &str) -> ElectionKey {
    ElectionKey { cluster: name.into(), slot: SlotNumber::new(std::num::NonZeroU32::MIN) }
}

pub(super) async fn claimed(storage: &ElectionsTtlStorage, name: &str, epoch: u64) {
    let vacant = Vacant { last_epoch: (epoch > 1).then(|| ielections::Epoch::new(epoch - 1).unwrap()) };
    let claim = storage.insert_if_not_exist(&key(name), vacant, &entry(epoch, 1, TTL)).await.unwrap();
    assert_eq!(claim, Claim::Claimed);
}

pub(super) async fn released(storage: &ElectionsTtlStorage, name: &str, epoch: u64) {
    let held = entry(epoch, 1, TTL);
    storage.compare_and_delete(&key(name), held.incarnation(), held.epoch).await.unwrap();
}

pub(super) async fn is_hinted(storage: &ElectionsTtlStorage, name: &str, within: Duration) -> bool {
    timeout(within, storage.hinted(&name.into())).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn release_and_request_are_hinted_at_and_a_renewal_is_not() {
    let place = Place::new().await;
    let (leader, standby) = (place.open().await, place.listening(&"name".into()).await);
    claimed(&leader, "name", 1).await;
    let (held, renewed) = (entry(1, 1, TTL), entry(1, 2, TTL));
    leader.compare_and_swap(&key("name"), &held, &renewed).await.unwrap();
    assert!(!is_hinted(&standby, "name", SHORT).await, "a claim or a renewal");
    released(&leader, "name", 1).await;
    assert!(is_hinted(&standby, "name", LONG).await, "release");
    let (pause, _) = leader.pause(&"name".into(), &held.holder, ask()).await.unwrap();
    assert!(is_hinted(&standby, "name", LONG).await, "pause");
    leader.resume(&"name".into(), &pause).await.unwrap();
    assert!(is_hinted(&standby, "name", LONG).await, "resume");
    claimed(&leader, "other", 1).await;
    released(&leader, "other", 1).await;
    assert!(!is_hinted(&standby, "name", SHORT).await, "release of another name");
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_that_looks_and_listens_has_one_connection() {
    let place = Place::new().await;
    let standby = place.listening(&"name".into()).await;
    let leader = place.open().await;
    for epoch in 1..10 {
        claimed(&leader, "name", epoch).await;
        let (looks, hint) = tokio::join!(
            async {
                for _ in 0..20 {
                    standby.scan(&[key("name")]).await.unwrap();
                }
                released(&leader, "name", epoch).await;
                standby.scan(&[key("name")]).await.unwrap()
            },
            is_hinted(&standby, "name", LONG),
        );
        assert!(hint && looks[0].entry().is_none(), "{looks:?}");
    }
    assert_eq!(place.connections().await, 2, "one of the leader, one of the standby");
}

#[tokio::test(flavor = "multi_thread")]
async fn hint_that_comes_during_a_look_is_kept() {
    let place = Place::new().await;
    let (leader, standby) = (place.open().await, place.listening(&"name".into()).await);
    claimed(&leader, "name", 1).await;
    released(&leader, "name", 1).await;
    // The connection belongs to looks meanwhile: the answer brings the hint along.
    standby.scan(&[key("name")]).await.unwrap();
    assert!(is_hinted(&standby, "name", LONG).await);
    assert!(!is_hinted(&standby, "name", SHORT).await, "told twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn end_of_the_connection_is_a_hint_and_listening_begins_anew() {
    let place = Place::new().await;
    let standby = place.listening(&"name".into()).await;
    let end = format!("SELECT pg_terminate_backend(pid) {OURS}");
    let (ended, hint) = tokio::join!(place.client.execute(&end, &[]), is_hinted(&standby, "name", LONG),);
    assert!(ended.unwrap() == 1 && hint);
    assert!(!standby.listens(&"name".into()), "polls until it listens again");
    // Listens again.
    assert!(is_hinted(&standby, "name", LONG).await);
    let leader = place.open().await;
    claimed(&leader, "name", 1).await;
    released(&leader, "name", 1).await;
    assert!(is_hinted(&standby, "name", LONG).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_and_lies_harm_nothing() {
    let place = Place::new().await;
    let (leader, standby) = (place.open().await, place.listening(&"name".into()).await);
    claimed(&leader, "name", 1).await;
    let channel: String = place
        .client
        .query_one(
            "SELECT query FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()",
            &[],
        )
        .await
        .map(|row| row.get::<_, String>(0).replace("LISTEN ", ""))
        .unwrap();
    for lie in 0..2000 {
        place.client.batch_execute(&format!("SELECT pg_notify('{channel}', '{lie}')")).await.unwrap();
    }
    // As many looks as the standby cares to make: each shows what stands.
    assert!(is_hinted(&standby, "name", LONG).await);
    let seen = standby.scan(&[key("name")]).await.unwrap();
    assert_eq!(seen[0].entry(), Some(&entry(1, 1, TTL)));
    released(&leader, "name", 1).await;
    assert!(is_hinted(&standby, "name", LONG).await);
}
