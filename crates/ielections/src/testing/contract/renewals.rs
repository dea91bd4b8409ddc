//! Renewals: `compare_and_swap` applies exactly to the version named, and once.

use super::{
    StorageUnderTest,
    scene::{Scene, held, mismatch, next, others_than_next, vacant_slot},
};
use crate::Version;

/// A leader can renew its record repeatedly.
pub async fn a_renewal_replaces_the_held_version(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let mut standing = scene.entry(1, 1);
    scene.claim(None, &standing).await;
    for _ in 0..3 {
        let renewed = next(&standing);
        scene.renew(&standing, &renewed).await;
        assert_eq!(scene.stands().await, held(&renewed));
        standing = renewed;
    }
}

/// A renewal of another version is refused, and shows the slot.
pub async fn a_renewal_of_another_version_is_refused(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let first = scene.entry(1, 1);
    let swap = scene.here.compare_and_swap(&scene.key, &first, &next(&first)).await.unwrap();
    assert_eq!(mismatch(swap), vacant_slot(None), "never led");

    scene.claim(None, &first).await;
    let standing = next(&first);
    scene.renew(&first, &standing).await;
    for (what, assumed) in others_than_next(&first) {
        let renewed = assumed.renewed(Version { write: 7, ..assumed.version });
        let swap = scene.here.compare_and_swap(&scene.key, &assumed, &renewed).await.unwrap();
        assert_eq!(mismatch(swap), held(&standing), "{what}");
        assert_eq!(scene.stands().await, held(&standing), "{what}");
    }

    scene.release(&standing).await;
    let swap = scene.here.compare_and_swap(&scene.key, &standing, &next(&standing)).await.unwrap();
    assert_eq!(mismatch(swap), vacant_slot(Some(1)), "released");
    assert_eq!(scene.stands().await, vacant_slot(Some(1)));
}

/// A renewal that arrives again, after a newer one, is refused.
pub async fn a_renewal_is_not_applied_twice(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let first = scene.entry(1, 1);
    let (second, third) = (next(&first), next(&next(&first)));
    scene.claim(None, &first).await;
    scene.renew(&first, &second).await;
    let again = scene.here.compare_and_swap(&scene.key, &first, &second).await.unwrap();
    assert_eq!(mismatch(again), held(&second));
    scene.renew(&second, &third).await;
    let again = scene.here.compare_and_swap(&scene.key, &first, &second).await.unwrap();
    assert_eq!(mismatch(again), held(&third));
    assert_eq!(scene.stands().await, held(&third));
}
