//! A write whose future was dropped is applied as a whole or not at all, now or later.

use super::{
    StorageUnderTest,
    scene::{Scene, next},
    settling::{Settled, of_swap, settled, standing},
};
use crate::{Entry, Slot};
use std::{future::poll_fn, task::Poll};

/// Drops writes at every stage, and reads the slot: it has one of the two records, never a mixture.
/// Shows I7.
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
                // An earlier, undecided attempt may have been applied.
                Settled::Refused(slot) | Settled::Undecided(slot) => one_of(slot, &[&held, &attempt, &after]),
            };
            if stands != held {
                break stands;
            }
        };
    }
}

/// Returns the record of the slot, which must be one of these.
fn one_of(slot: Slot, records: &[&Entry]) -> Entry {
    match slot {
        Slot::Held { entry, .. } if records.contains(&&entry) => entry,
        other => panic!("{other:?} is none of {records:?}"),
    }
}
