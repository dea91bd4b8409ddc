//! Epochs survive release, expiry, closing and reopening.

use super::{
    StorageUnderTest,
    scene::{Scene, ageless, held, next, refused, vacant, vacant_slot},
};
use crate::Epoch;
use vvm_clock::{Clock, SystemClock};

/// A released slot shows the epoch of its last leadership, after one release and after many.
pub async fn epochs_survive_release(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let mut last_epoch = None;
    for epoch in [1, 2, 1_000_000, 1_790_000_000_000] {
        let entry = scene.entry(1, epoch);
        scene.claim(last_epoch, &entry).await;
        scene.release(&entry).await;
        assert_eq!(scene.stands().await, vacant_slot(Some(epoch)));
        last_epoch = Some(epoch);
    }
}

/// A record whose TTL has passed keeps its epoch, and a take-over gets it.
pub async fn epochs_survive_expiry(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let clock = SystemClock::start().unwrap();
    let (first, second) = (scene.entry(1, 7), scene.entry(2, 8));
    scene.claim(None, &first).await;
    clock.sleep(scene.ttl.get() * 2).await;
    assert_eq!(scene.stands().await.last_epoch(), Some(first.epoch));
    let claim = scene.here.insert_if_not_exist(&scene.key, vacant(None), &second).await.unwrap();
    assert_eq!(refused(claim).last_epoch(), Some(first.epoch));
    scene.take_over(&first, &second).await;
    scene.release(&second).await;
    assert_eq!(scene.stands().await, vacant_slot(Some(8)));
}

/// Closing every handle loses neither a record nor an epoch.
pub async fn epochs_survive_closing_and_reopening(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let (first, key, other) = (scene.entry(1, 7), scene.key.clone(), storage.key(b"other"));
    let renewed = next(&first);
    scene.claim(None, &first).await;
    scene.renew(&first, &renewed).await;
    let released = scene.entry(2, 9);
    scene.here.insert_if_not_exist(&other, vacant(None), &released).await.unwrap();
    scene.here.compare_and_delete(&other, released.incarnation(), released.epoch).await.unwrap();
    scene.here.close().await;
    scene.there.close().await;

    let reopened = storage.open().await;
    assert_eq!(ageless(reopened.get(&key).await.unwrap()), held(&renewed));
    assert_eq!(reopened.get(&other).await.unwrap(), vacant_slot(Some(9)));
    let ghost = reopened.insert_if_not_exist(&other, vacant(None), &scene.entry(3, 1)).await.unwrap();
    assert_eq!(refused(ghost), vacant_slot(Some(9)));
}

/// The smallest and the largest epoch are kept, in a record and after its release.
pub async fn the_smallest_and_the_largest_epoch_are_kept(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let mut last_epoch = None;
    for epoch in [1, u64::from(u32::MAX) + 1, Epoch::MAX] {
        let entry = scene.entry(1, epoch);
        scene.claim(last_epoch, &entry).await;
        assert_eq!(scene.stands().await, held(&entry));
        scene.release(&entry).await;
        assert_eq!(scene.stands().await, vacant_slot(Some(epoch)));
        last_epoch = Some(epoch);
    }
}
