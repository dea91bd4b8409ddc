//! Never early (I5): no TTL ends a record, and no proven age is larger than the time since the write was
//! issued.

use super::{
    StorageUnderTest,
    scene::{Scene, held, next, refused, vacant},
};
use crate::{Claim, Entry, Key, Slot, Swap, TtlStorage};
use std::time::Duration;
use vvm_clock::{Clock, Instant, SystemClock};

/// Short compared to the shortest TTL, 100 ms.
const STEP: Duration = Duration::from_millis(10);

/// A record whose TTL has passed is still read, refuses claims, and can be taken over.
/// Shows I5.
pub async fn a_record_stands_until_a_write_replaces_it(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let clock = SystemClock::start().unwrap();
    let (entry, intruder) = (scene.entry(1, 1), scene.entry(2, 2));
    scene.claim(None, &entry).await;
    let long_expired = clock.now().after(scene.ttl.get() * 3);
    while clock.now() < long_expired {
        assert_eq!(scene.stands().await, held(&entry));
        for last_epoch in [None, Some(1)] {
            let claim =
                scene.here.insert_if_not_exist(&scene.key, vacant(last_epoch), &intruder).await.unwrap();
            assert_eq!(refused(claim), held(&entry));
        }
        clock.sleep(STEP).await;
    }
    scene.take_over(&entry, &intruder).await;
}

/// The proven age of a held slot.
fn age(slot: &Slot) -> Option<Duration> {
    match slot {
        Slot::Held { proven_age, .. } => *proven_age,
        Slot::Vacant(_) => panic!("vacant, but a record was written"),
    }
}

/// Reads through every handle, old and new, for a while: no age exceeds the time since `issued_at`.
async fn ages_are_proven<S: StorageUnderTest>(
    storage: &S,
    scene: &Scene<S::Key>,
    clock: &SystemClock,
    entry: &Entry,
    issued_at: Instant,
) {
    let handles = [scene.here.clone(), scene.there.clone(), storage.open().await];
    for _ in 0..5 {
        for handle in &handles {
            let slots = [
                handle.get(&scene.key).await.unwrap(),
                handle.scan(std::slice::from_ref(&scene.key)).await.unwrap().remove(0),
            ];
            for slot in slots {
                // A stale scan shows another version, with another age.
                let at_most = clock.now().since(issued_at);
                if slot.entry() == Some(entry) {
                    assert!(
                        age(&slot).is_none_or(|age| age <= at_most),
                        "{:?} is proven, {at_most:?} passed since the write was issued",
                        age(&slot),
                    );
                }
            }
        }
        clock.sleep(STEP).await;
    }
    handles[2].close().await;
}

/// The age starts anew with every write: claim, renewal and take-over.
/// Shows I5.
pub async fn a_proven_age_is_never_larger_than_the_time_since_the_write(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let clock = SystemClock::start().unwrap();
    let (first, taken) = (scene.entry(1, 1), scene.entry(2, 2));
    let renewed = next(&first);

    let issued_at = clock.now();
    scene.claim(None, &first).await;
    ages_are_proven(storage, &scene, &clock, &first, issued_at).await;

    let issued_at = clock.now();
    scene.renew(&first, &renewed).await;
    ages_are_proven(storage, &scene, &clock, &renewed, issued_at).await;

    let issued_at = clock.now();
    scene.take_over(&renewed, &taken).await;
    ages_are_proven(storage, &scene, &clock, &taken, issued_at).await;
}

/// A refused write proves no more age than a read.
pub async fn a_refused_write_proves_no_more_age_than_a_read(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let clock = SystemClock::start().unwrap();
    let (entry, stranger) = (scene.entry(1, 1), scene.entry(2, 2));
    let issued_at = clock.now();
    scene.claim(None, &entry).await;
    for handle in [&scene.here, &scene.there] {
        for slot in refusals(&**handle, &scene.key, &stranger).await {
            let at_most = clock.now().since(issued_at);
            assert_eq!(slot.entry(), Some(&entry));
            assert!(age(&slot).is_none_or(|age| age <= at_most), "{:?} > {at_most:?}", age(&slot));
        }
    }
}

/// The slots of one refusal of each verb.
async fn refusals<K: Key>(handle: &dyn TtlStorage<K>, key: &K, stranger: &Entry) -> Vec<Slot> {
    let mut slots = Vec::new();
    if let Claim::Refused(slot) = handle.insert_if_not_exist(key, vacant(None), stranger).await.unwrap() {
        slots.push(slot);
    }
    if let Claim::Refused(slot) = handle.take_over(key, stranger, &next(stranger)).await.unwrap() {
        slots.push(slot);
    }
    if let Swap::Mismatch(slot) = handle.compare_and_swap(key, stranger, &next(stranger)).await.unwrap() {
        slots.push(slot);
    }
    let delete = handle.compare_and_delete(key, stranger.incarnation(), stranger.epoch).await.unwrap();
    if let crate::Delete::Mismatch(slot) = delete {
        slots.push(slot);
    }
    assert_eq!(slots.len(), 4, "a write of a stranger was applied");
    slots
}
