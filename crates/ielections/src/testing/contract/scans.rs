//! Scans: in the order of the keys, and complete. A scan may be stale, so these cases wait until it is not.

use super::{
    StorageUnderTest,
    scene::{Scene, ageless, held, vacant_slot},
};
use crate::{Entry, Key, Slot};
use std::time::Duration;
use vvm_clock::{Clock, SystemClock};

/// How stale a scan may be. A candidate may miss a vacant slot for this time.
const STALEST: Duration = Duration::from_secs(5);

/// Scans until it shows `expected`.
async fn scans_as<K: Key>(scene: &Scene<K>, keys: &[K], expected: &[Slot]) {
    let clock = SystemClock::start().unwrap();
    let begun = clock.now();
    loop {
        let slots: Vec<_> = scene.there.scan(keys).await.unwrap().into_iter().map(ageless).collect();
        if slots == expected {
            return;
        }
        assert!(clock.now().since(begun) < STALEST, "scanned {slots:?} instead of {expected:?}");
        clock.sleep(Duration::from_millis(10)).await;
    }
}

async fn claim_all<K: Key>(scene: &Scene<K>, keys: &[K]) -> Vec<Slot> {
    let mut slots = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let entry = Entry { ..scene.entry(index as u8, index as u64 + 1) };
        let scene =
            Scene { here: scene.here.clone(), there: scene.there.clone(), key: key.clone(), ttl: scene.ttl };
        scene.claim(None, &entry).await;
        slots.push(held(&entry));
    }
    slots
}

/// Slots come in the order of the keys, and twice for a key that is named twice.
pub async fn a_scan_keeps_the_order_of_its_keys(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let keys = [b"b", b"a", b"d", b"c"].map(|name| storage.key(name));
    let slots = claim_all(&scene, &keys).await;
    scans_as(&scene, &keys, &slots).await;
    let [b, a, d, c] = keys;
    let [of_b, of_a, of_d, of_c] = slots.try_into().unwrap();
    scans_as(&scene, &[d.clone(), c, b, a, d], &[of_d.clone(), of_c, of_b, of_a, of_d]).await;
}

/// A slot that was never led and a released one are part of a scan.
pub async fn a_scan_shows_slots_that_were_never_led(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let [released, never, led] = [b"released", b"no one's", b"held now"].map(|name| storage.key(name));
    let slots = claim_all(&scene, &[released.clone(), led.clone()]).await;
    let entry = slots[0].entry().unwrap();
    scene.here.compare_and_delete(&released, entry.incarnation(), entry.epoch).await.unwrap();
    scans_as(&scene, &[never, released, led], &[vacant_slot(None), vacant_slot(Some(1)), slots[1].clone()])
        .await;
    scans_as(&scene, &[], &[]).await;
}

/// A scan of more keys than the storage reads at a time is complete.
pub async fn a_scan_takes_more_keys_than_a_batch(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let keys: Vec<_> = (0..=scene.here.limits().scan_batch as u64)
        .map(|number| storage.key(&number.to_be_bytes()))
        .collect();
    let (first, last) = (&keys[0], &keys[keys.len() - 1]);
    let slots = claim_all(&scene, &[first.clone(), last.clone()]).await;
    let mut expected = vec![vacant_slot(None); keys.len()];
    expected[0] = slots[0].clone();
    expected[keys.len() - 1] = slots[1].clone();
    scans_as(&scene, &keys, &expected).await;
}
