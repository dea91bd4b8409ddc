//! Watches as hints: between handles that share nothing but the server.

use super::{fresh, kubectl, open, url};
use ielections::{Claim, Entry, Epoch, Holder, Incarnation, Ttl, TtlStorage as _, Vacant, Version};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use tokio::time::timeout;
use vvm_storage::{Ask, ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber};

/// More than a hint takes, on any machine.
const LONG: Duration = Duration::from_secs(20);

/// For a hint that must not come. One that comes later is not noticed.
const SHORT: Duration = Duration::from_millis(500);

fn entry(epoch: u64, write: u64) -> Entry {
    Entry {
        holder: Holder::new("host").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([7; 16]), write },
        ttl: Ttl::new(Duration::from_secs(2)).unwrap(),
        epoch: Epoch::new(epoch).unwrap(),
    }
}

struct Scene {
    name: ClusterName,
    lease: String,
    leader: ElectionsTtlStorage,
    standby: ElectionsTtlStorage,
}

impl Scene {
    /// With a standby that watches.
    async fn new() -> Self {
        let lease = fresh();
        let name = ClusterName::from(&*lease);
        let handle = async || ElectionsTtlStorage::new(Arc::new(open(&url()).await));
        let (leader, standby) = (handle().await, handle().await);
        leader.settle_slot_count(&name, NonZeroU32::MIN).await.unwrap();
        // The first one comes when the server watches.
        timeout(LONG, standby.hinted(&name)).await.unwrap();
        assert!(standby.listens(&name) && !standby.listens(&"other".into()));
        Self { name, lease, leader, standby }
    }

    fn key(&self) -> ElectionKey {
        ElectionKey { cluster: self.name.clone(), slot: SlotNumber::new(NonZeroU32::MIN) }
    }

    async fn claimed(&self, epoch: u64) {
        let vacant = Vacant { last_epoch: Epoch::new(epoch - 1).ok() };
        let claim = self.leader.insert_if_not_exist(&self.key(), vacant, &entry(epoch, 1)).await;
        assert_eq!(claim.unwrap(), Claim::Claimed);
    }

    async fn released(&self, epoch: u64) {
        let held = entry(epoch, 1);
        self.leader.compare_and_delete(&self.key(), held.incarnation(), held.epoch).await.unwrap();
    }

    async fn is_hinted(&self, within: Duration) -> bool {
        timeout(within, self.standby.hinted(&self.name)).await.is_ok()
    }

    /// Takes the hints of what was there when the watch began.
    async fn quiet(&self) {
        while self.is_hinted(SHORT).await {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn release_and_request_are_hinted_at_and_a_renewal_is_not() {
    let scene = Scene::new().await;
    scene.claimed(1).await;
    // The claim stores the bound of TTLs first, which is hinted at.
    scene.quiet().await;
    scene.leader.compare_and_swap(&scene.key(), &entry(1, 1), &entry(1, 2)).await.unwrap();
    assert!(!scene.is_hinted(SHORT).await, "a renewal");
    scene.released(1).await;
    assert!(scene.is_hinted(LONG).await, "release");
    scene.claimed(2).await;
    assert!(!scene.is_hinted(SHORT).await, "a claim");
    let ask = Ask { incarnation: Incarnation::from_bytes([8; 16]), since_unix_epoch: Duration::ZERO };
    let (pause, _) = scene.leader.pause(&scene.name, &entry(1, 1).holder, ask).await.unwrap();
    assert!(scene.is_hinted(LONG).await, "pause");
    scene.leader.resume(&scene.name, &pause).await.unwrap();
    assert!(scene.is_hinted(LONG).await, "resume");
}

#[tokio::test(flavor = "multi_thread")]
async fn hint_that_comes_while_no_call_waits_is_kept() {
    let scene = Scene::new().await;
    scene.claimed(1).await;
    scene.quiet().await;
    scene.released(1).await;
    scene.standby.scan(&[scene.key()]).await.unwrap();
    assert!(scene.is_hinted(LONG).await);
    assert!(!scene.is_hinted(SHORT).await, "told twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_and_lies_harm_nothing() {
    let scene = Scene::new().await;
    scene.claimed(1).await;
    scene.quiet().await;
    for lie in 0..20 {
        kubectl(&[
            "annotate",
            "--overwrite",
            "lease",
            &format!("{}.slots", scene.lease),
            &format!("lie={lie}"),
        ]);
    }
    assert!(scene.is_hinted(LONG).await);
    let seen = scene.standby.scan(&[scene.key()]).await.unwrap();
    assert_eq!(seen[0].entry(), Some(&entry(1, 1)));
    scene.quiet().await;
    scene.released(1).await;
    assert!(scene.is_hinted(LONG).await);
}
