//! Releases: `compare_and_delete` applies exactly to the incarnation and epoch named, whatever the version.

use super::{
    StorageUnderTest,
    scene::{Scene, held, next, not_deleted, vacant_slot},
};
use crate::{Epoch, Incarnation};

/// Who releases need not know whether the last renewal was applied.
pub async fn a_release_vacates_whatever_the_version(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let first = scene.entry(1, 1);
    scene.claim(None, &first).await;
    scene.renew(&first, &next(&first)).await;
    // By incarnation and epoch, both of which the renewal kept.
    scene.release(&first).await;
    assert_eq!(scene.stands().await, vacant_slot(Some(1)));
}

/// Another incarnation, and another epoch of the same one, release nothing.
pub async fn a_release_by_anybody_else_is_refused(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let entry = scene.entry(1, 5);
    scene.claim(None, &entry).await;
    let stranger = Incarnation::from_bytes([2; 16]);
    for (incarnation, epoch) in [(stranger, 5), (entry.incarnation(), 4), (entry.incarnation(), 6)] {
        let epoch = Epoch::new(epoch).unwrap();
        let delete = scene.here.compare_and_delete(&scene.key, incarnation, epoch).await.unwrap();
        assert_eq!(not_deleted(delete), held(&entry), "{incarnation:?}, {epoch:?}");
        assert_eq!(scene.stands().await, held(&entry));
    }
}

/// Nothing is released twice, and nothing that was never led.
pub async fn a_release_of_a_vacant_slot_is_refused(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let entry = scene.entry(1, 5);
    let release = || scene.here.compare_and_delete(&scene.key, entry.incarnation(), entry.epoch);
    assert_eq!(not_deleted(release().await.unwrap()), vacant_slot(None));
    scene.claim(None, &entry).await;
    scene.release(&entry).await;
    assert_eq!(not_deleted(release().await.unwrap()), vacant_slot(Some(5)));
    assert_eq!(scene.stands().await, vacant_slot(Some(5)));
}
