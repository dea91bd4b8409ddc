//! Claims: `insert_if_not_exist` applies exactly to the vacancy named, `take_over` exactly to the version
//! named, and a refusal shows the slot.

use super::{
    StorageUnderTest,
    scene::{Scene, held, next, others_than_next, refused, vacant, vacant_slot},
};

/// A slot that was never led can be claimed.
pub async fn a_claim_takes_a_slot_that_was_never_led(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    assert_eq!(scene.stands().await, vacant_slot(None));
    let entry = scene.entry(1, 1);
    scene.claim(None, &entry).await;
    assert_eq!(scene.stands().await, held(&entry));
}

/// A released slot can be claimed with its last epoch.
pub async fn a_claim_takes_a_released_slot(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let (first, second) = (scene.entry(1, 1), scene.entry(2, 2));
    scene.claim(None, &first).await;
    scene.release(&first).await;
    scene.claim(Some(1), &second).await;
    assert_eq!(scene.stands().await, held(&second));
}

/// A held slot can't be claimed as vacant, with any last epoch.
pub async fn a_claim_of_a_held_slot_is_refused(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let (first, second, third) = (scene.entry(1, 1), scene.entry(2, 2), scene.entry(3, 3));
    scene.claim(None, &first).await;
    scene.release(&first).await;
    scene.claim(Some(1), &second).await;
    for last_epoch in [None, Some(1), Some(2)] {
        let claim = scene.here.insert_if_not_exist(&scene.key, vacant(last_epoch), &third).await.unwrap();
        assert_eq!(refused(claim), held(&second), "claimed as vacant since {last_epoch:?}");
        assert_eq!(scene.stands().await, held(&second));
    }
}

/// A vacancy is named by its last epoch; a claim of another vacancy is refused, and shows the right one.
pub async fn a_claim_that_names_a_wrong_last_epoch_is_refused(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let entry = scene.entry(1, 9);
    let claim = scene.here.insert_if_not_exist(&scene.key, vacant(Some(5)), &entry).await.unwrap();
    assert_eq!(refused(claim), vacant_slot(None));
    assert_eq!(scene.stands().await, vacant_slot(None));

    let first = scene.entry(2, 5);
    scene.claim(None, &first).await;
    scene.release(&first).await;
    for wrong in [None, Some(4), Some(6)] {
        let claim = scene.here.insert_if_not_exist(&scene.key, vacant(wrong), &entry).await.unwrap();
        assert_eq!(refused(claim), vacant_slot(Some(5)), "claimed as vacant since {wrong:?}");
        assert_eq!(scene.stands().await, vacant_slot(Some(5)));
    }
}

/// A claim that arrives after a release, again or for the first time, finds another vacancy.
pub async fn a_late_claim_is_refused_after_the_release(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let (first, second) = (scene.entry(1, 1), scene.entry(2, 2));
    scene.claim(None, &first).await;
    scene.release(&first).await;
    let ghost = scene.here.insert_if_not_exist(&scene.key, vacant(None), &first).await.unwrap();
    assert_eq!(refused(ghost), vacant_slot(Some(1)));
    scene.claim(Some(1), &second).await;
    scene.release(&second).await;
    let ghost = scene.here.insert_if_not_exist(&scene.key, vacant(Some(1)), &second).await.unwrap();
    assert_eq!(refused(ghost), vacant_slot(Some(2)));
    assert_eq!(scene.stands().await, vacant_slot(Some(2)));
}

/// A record can be taken over with its version.
pub async fn a_take_over_replaces_the_observed_version(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let first = scene.entry(1, 1);
    scene.claim(None, &first).await;
    let renewed = next(&first);
    scene.renew(&first, &renewed).await;
    let taken = scene.entry(2, 2);
    scene.take_over(&renewed, &taken).await;
    assert_eq!(scene.stands().await, held(&taken));
}

/// A record that was renewed, replaced or released since can't be taken over.
pub async fn a_take_over_of_another_version_is_refused(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let (first, intruder) = (scene.entry(1, 1), scene.entry(2, 9));
    let claim = scene.here.take_over(&scene.key, &first, &intruder).await.unwrap();
    assert_eq!(refused(claim), vacant_slot(None), "never led");

    scene.claim(None, &first).await;
    let standing = next(&first);
    scene.renew(&first, &standing).await;
    for (what, observed) in others_than_next(&first) {
        let claim = scene.here.take_over(&scene.key, &observed, &intruder).await.unwrap();
        assert_eq!(refused(claim), held(&standing), "{what}");
        assert_eq!(scene.stands().await, held(&standing), "{what}");
    }

    scene.release(&standing).await;
    let claim = scene.here.take_over(&scene.key, &standing, &intruder).await.unwrap();
    assert_eq!(refused(claim), vacant_slot(Some(1)), "released");
    assert_eq!(scene.stands().await, vacant_slot(Some(1)));
}
