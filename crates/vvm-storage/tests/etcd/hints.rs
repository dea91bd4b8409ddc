//! Watches as hints: between handles that share nothing but the cluster.

use super::{
    TTL, entry,
    failures::{program, ready},
    fresh, url,
};
use ielections::{Claim, Epoch, Incarnation, TtlStorage, Vacant};
use servers::etcd::Cluster;
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use tokio::time::timeout;
use vvm_storage::{
    Ask, ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, etcd::EtcdStorage, init_storage,
};

/// More than a hint takes, on any machine.
const LONG: Duration = Duration::from_secs(20);

/// For a hint that must not come. One that comes later is not noticed.
const SHORT: Duration = Duration::from_millis(300);

/// A storage on a cluster.
async fn opened(url: &str) -> ElectionsTtlStorage {
    ElectionsTtlStorage::new(Arc::new(EtcdStorage::open(url).await.unwrap()))
}

/// A handle that watches.
async fn watching(url: &str, cluster: &ClusterName) -> ElectionsTtlStorage {
    let storage = opened(url).await;
    assert!(!storage.listens(cluster));
    // The first one comes when the member watches.
    timeout(LONG, storage.hinted(cluster)).await.unwrap();
    assert!(storage.listens(cluster) && !storage.listens(&"other".into()));
    storage
}

fn key(name: &str) -> ElectionKey {
    ElectionKey { cluster: name.into(), slot: SlotNumber::new(NonZeroU32::MIN) }
}

async fn claimed(storage: &ElectionsTtlStorage, name: &str, epoch: u64) {
    let vacant = Vacant { last_epoch: (epoch > 1).then(|| Epoch::new(epoch - 1).unwrap()) };
    let claim = storage.insert_if_not_exist(&key(name), vacant, &entry(epoch, 1, TTL)).await.unwrap();
    assert_eq!(claim, Claim::Claimed);
}

async fn released(storage: &ElectionsTtlStorage, name: &str, epoch: u64) {
    let held = entry(epoch, 1, TTL);
    storage.compare_and_delete(&key(name), held.incarnation(), held.epoch).await.unwrap();
}

async fn is_hinted(storage: &ElectionsTtlStorage, name: &str, within: Duration) -> bool {
    timeout(within, storage.hinted(&name.into())).await.is_ok()
}

fn ask() -> Ask {
    Ask { incarnation: Incarnation::from_bytes([8; 16]), since_unix_epoch: Duration::ZERO }
}

#[tokio::test(flavor = "multi_thread")]
async fn release_and_request_are_hinted_at_and_a_renewal_is_not() {
    let url = url(&fresh("etcd"));
    init_storage(&url).await.unwrap();
    let (leader, standby) = (opened(&url).await, watching(&url, &"name".into()).await);
    claimed(&leader, "name", 1).await;
    let (held, renewed) = (entry(1, 1, TTL), entry(1, 2, TTL));
    leader.compare_and_swap(&key("name"), &held, &renewed).await.unwrap();
    assert!(!is_hinted(&standby, "name", SHORT).await, "a claim or a renewal");
    released(&leader, "name", 1).await;
    assert!(is_hinted(&standby, "name", LONG).await, "the release");
    leader.pause(&"name".into(), &entry(1, 1, TTL).holder, ask()).await.unwrap();
    assert!(is_hinted(&standby, "name", LONG).await, "the pause");
    // Names that begin alike.
    claimed(&leader, "name2", 1).await;
    released(&leader, "name2", 1).await;
    assert!(!is_hinted(&standby, "name", SHORT).await, "another name");
}

#[tokio::test(flavor = "multi_thread")]
async fn hint_that_comes_between_two_waits_is_kept() {
    let url = url(&fresh("etcd"));
    init_storage(&url).await.unwrap();
    let (leader, standby) = (opened(&url).await, watching(&url, &"name".into()).await);
    claimed(&leader, "name", 1).await;
    released(&leader, "name", 1).await;
    // Dropped at once, as a wait is that loses against a look.
    let _elapsed = timeout(Duration::ZERO, standby.hinted(&"name".into())).await;
    claimed(&leader, "name", 2).await;
    released(&leader, "name", 2).await;
    assert!(is_hinted(&standby, "name", LONG).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn end_of_a_watch_is_a_hint_and_watching_goes_on() {
    let mut cluster = Cluster::start(&program(), 1).unwrap();
    let url = format!("etcd://{}/vvm", cluster.addresses());
    let standby = ElectionsTtlStorage::new(Arc::new(ready(&url).await));
    assert!(is_hinted(&standby, "name", LONG).await, "the first watch");
    cluster.members()[0].kill().unwrap();
    assert!(is_hinted(&standby, "name", LONG).await, "the end");
    assert!(!standby.listens(&"name".into()), "polls until it watches again");
    cluster.members()[0].restart().unwrap();
    assert!(is_hinted(&standby, "name", LONG).await, "the next watch");
    let leader = ElectionsTtlStorage::new(Arc::new(ready(&url).await));
    claimed(&leader, "name", 1).await;
    released(&leader, "name", 1).await;
    assert!(is_hinted(&standby, "name", LONG).await, "the release");
}
