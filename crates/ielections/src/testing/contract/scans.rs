//! A scan may be stale, so these cases wait until it is not. Dropped writes, and closed handles.
#![allow(missing_docs, reason = "the name of a case says what it shows")]

use super::{
    StorageUnderTest,
    claims::{Settled, of_swap, settled, standing},
    scene::{Scene, held, next, vacant_slot},
};
use crate::{Entry, Key, Slot, testing::lateness::too_late};
use std::{future::poll_fn, task::Poll, time::Duration};
use vvm_clock::{Clock, SystemClock};

/// How stale a scan may be. A candidate may miss a vacant slot for this time.
const STALEST: Duration = Duration::from_secs(5);

/// A storage may have no limit of its own.
const MOST_KEYS: usize = 5000;

async fn scans_as<K: Key>(scene: &Scene<K>, keys: &[K], expected: &[Slot]) {
    let clock = SystemClock::start().unwrap();
    let begun = clock.now();
    loop {
        let slots = scene.there.scan(keys).await.unwrap();
        let mut seen = vec![None; keys.len()];
        scene.there.scan_some(keys, &mut seen).await.unwrap();
        let seen: Option<Vec<_>> = seen.into_iter().collect();
        let seen = seen.expect("a scan of some slots that has not failed shows each");
        if slots == expected && seen == expected {
            return;
        }
        if clock.now().since(begun) >= STALEST {
            too_late(format!("scanned {slots:?} and {seen:?} instead of {expected:?} for {STALEST:?}"));
        }
        clock.sleep(Duration::from_millis(10)).await;
    }
}

async fn claim_all<K: Key>(scene: &Scene<K>, keys: &[K]) -> Vec<Slot> {
    scene.claim_all(keys).await.iter().map(held).collect()
}

pub async fn a_scan_keeps_the_order_of_its_keys(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let keys = [b"b", b"a", b"d", b"c"].map(|name| storage.key(name));
    let slots = claim_all(&scene, &keys).await;
    scans_as(&scene, &keys, &slots).await;
    let [b, a, d, c] = keys;
    let [of_b, of_a, of_d, of_c] = slots.try_into().unwrap();
    scans_as(&scene, &[d.clone(), c, b, a, d], &[of_d.clone(), of_c, of_b, of_a, of_d]).await;
}

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

pub async fn a_scan_takes_more_keys_than_a_batch(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let batch = scene.here.limits().scan_batch.min(MOST_KEYS);
    let keys: Vec<_> = (0..=batch as u64).map(|number| storage.key(&number.to_be_bytes())).collect();
    let (first, last) = (&keys[0], &keys[keys.len() - 1]);
    let slots = claim_all(&scene, &[first.clone(), last.clone()]).await;
    let mut expected = vec![vacant_slot(None); keys.len()];
    expected[0] = slots[0].clone();
    expected[keys.len() - 1] = slots[1].clone();
    scans_as(&scene, &keys, &expected).await;
}

/// Drops writes at every stage, and reads the slot: it has one of the two records, never a mixture. Shows I7.
pub async fn a_dropped_write_is_applied_whole_or_not_at_all(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let mut held = scene.entry(1, 1);
    scene.claim(None, &held).await;
    for round in 0..100 {
        let attempt = next(&held);
        let mut swap = scene.here.compare_and_swap(&scene.key, &held, &attempt);
        for _ in 0..round % 4 {
            if poll_fn(|context| Poll::Ready(swap.as_mut().poll(context))).await.is_ready() {
                break;
            }
        }
        drop(swap);
        // It may be applied between any two of the following steps. The version shows which record stands.
        one_of(standing(&*scene.there, &scene.key).await, &[&held, &attempt]);
        let after = next(&attempt);
        held = loop {
            let outcome = scene.here.compare_and_swap(&scene.key, &held, &after).await.map(of_swap);
            let stands = match settled(outcome, &after, &*scene.there, &scene.key).await {
                Settled::Applied => break after,
                Settled::Refused(slot) | Settled::Undecided(slot) => one_of(slot, &[&held, &attempt, &after]),
            };
            if stands != held {
                break stands;
            }
        };
    }
}

fn one_of(slot: Slot, records: &[&Entry]) -> Entry {
    match slot {
        Slot::Held { entry, .. } if records.contains(&&entry) => entry,
        other => panic!("{other:?} is none of {records:?}"),
    }
}

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
