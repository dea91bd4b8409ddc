//! Releases: `compare_and_delete` applies exactly to the incarnation and epoch named, in any version.

use super::{
    StorageUnderTest,
    scene::{Scene, held, next, not_deleted, vacant_slot},
};
use crate::{Epoch, Incarnation};

/// A leader can release without knowing whether its last renewal was applied.
pub async fn a_release_applies_to_any_version(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let first = scene.entry(1, 1);
    scene.claim(None, &first).await;
    scene.renew(&first, &next(&first)).await;
    // The renewal has kept incarnation and epoch.
    scene.release(&first).await;
    assert_eq!(scene.stands().await, vacant_slot(Some(1)));
}

/// Another incarnation, and another epoch of the same one, release nothing.
pub async fn a_release_of_another_incarnation_or_epoch_is_refused(storage: &impl StorageUnderTest) {
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

/// A slot that was released or never led can't be released.
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
