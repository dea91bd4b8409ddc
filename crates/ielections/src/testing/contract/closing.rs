//! Closing: every later call of the handle fails for good. Other handles are not affected.

use super::{
    StorageUnderTest,
    scene::{Scene, held, next},
};

/// Every verb of a closed handle fails with `Fatal` and changes nothing. Closing again has no effect.
pub async fn a_closed_handle_refuses_everything_for_good(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let (key, entry, other) = (&scene.key, scene.entry(1, 1), storage.key(b"other"));
    scene.claim(None, &entry).await;
    scene.here.close().await;
    scene.here.close().await;
    scene.is_refused(key, &entry).await;
    scene.is_refused(&other, &entry).await;
    assert_eq!(scene.stands().await, held(&entry));
    assert_eq!(scene.there.get(&other).await.unwrap().last_epoch(), None);
}

/// Other handles still read and write after one was closed.
pub async fn closing_one_handle_leaves_the_others_open(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let entry = scene.entry(1, 1);
    scene.claim(None, &entry).await;
    scene.there.close().await;
    let reopened = storage.open().await;
    scene.renew(&entry, &next(&entry)).await;
    let scene = Scene { there: reopened, ..scene };
    assert_eq!(scene.stands().await, held(&next(&entry)));
}
