//! A write whose future was dropped is applied whole or not at all, now or later.

use super::{
    StorageUnderTest,
    scene::{Scene, next},
};
use crate::{Slot, Swap};
use std::{future::poll_fn, task::Poll};

/// Drops writes at every stage, and goes on from what stands there: always one of the two records, never a mixture.
pub async fn a_dropped_write_is_applied_whole_or_not_at_all(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let mut standing = scene.entry(1, 1);
    scene.claim(None, &standing).await;
    for round in 0..100 {
        let attempt = next(&standing);
        let mut swap = scene.here.compare_and_swap(&scene.key, &standing, &attempt);
        for _ in 0..round % 4 {
            if poll_fn(|context| Poll::Ready(swap.as_mut().poll(context))).await.is_ready() {
                break;
            }
        }
        drop(swap);
        // It may land between any two of the steps that follow; the version says so each time.
        let after = next(&attempt);
        match scene.there.get(&scene.key).await.unwrap() {
            Slot::Held { entry, .. } if entry == standing || entry == attempt => {}
            other => panic!("{other:?} is neither {standing:?} nor {attempt:?}"),
        }
        standing = match scene.here.compare_and_swap(&scene.key, &standing, &after).await.unwrap() {
            Swap::Swapped => after,
            Swap::Mismatch(Slot::Held { entry, .. }) if entry == attempt => attempt,
            Swap::Mismatch(other) => panic!("{other:?} is neither {standing:?} nor {attempt:?}"),
        };
    }
}
