//! Closing: every call after it fails for good, and it concerns one handle only.

use super::{
    StorageUnderTest,
    scene::{Scene, held, next, vacant},
};
use crate::{ReadError, WriteError};

/// Every verb of a closed handle fails with `Fatal` and changes nothing; closing it again is harmless.
pub async fn a_closed_handle_refuses_everything_for_good(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let (key, entry, other) = (&scene.key, scene.entry(1, 1), storage.key(b"other"));
    scene.claim(None, &entry).await;
    scene.here.close().await;
    scene.here.close().await;
    let claim = scene.here.insert_if_not_exist(&other, vacant(None), &entry).await;
    assert!(matches!(claim, Err(WriteError::Fatal(_))), "claim: {claim:?}");
    let claim = scene.here.take_over(key, &entry, &scene.entry(2, 2)).await;
    assert!(matches!(claim, Err(WriteError::Fatal(_))), "take-over: {claim:?}");
    let swap = scene.here.compare_and_swap(key, &entry, &next(&entry)).await;
    assert!(matches!(swap, Err(WriteError::Fatal(_))), "renewal: {swap:?}");
    let delete = scene.here.compare_and_delete(key, entry.incarnation(), entry.epoch).await;
    assert!(matches!(delete, Err(WriteError::Fatal(_))), "release: {delete:?}");
    let get = scene.here.get(key).await;
    assert!(matches!(get, Err(ReadError::Fatal(_))), "read: {get:?}");
    let scan = scene.here.scan(std::slice::from_ref(key)).await;
    assert!(matches!(scan, Err(ReadError::Fatal(_))), "scan: {scan:?}");

    assert_eq!(scene.stands().await, held(&entry));
    assert_eq!(scene.there.get(&other).await.unwrap().last_epoch(), None);
}

/// Other handles go on reading and writing what the closed one wrote.
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
