//! Reads are exact and linearizable.

use super::{
    StorageUnderTest,
    scene::{Scene, ageless, held, next, vacant_slot},
};
use crate::{Entry, Incarnation, Ttl, Version};
use std::{array, time::Duration};

/// Holder, version, TTL and epoch are read as they were written, by every verb.
pub async fn every_part_of_a_record_is_read_as_it_was_written(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let odd = scene.ttl.get() + Duration::from_nanos(123_456_789);
    let mut claimed = scene.entry(1, 1);
    claimed.version =
        Version { incarnation: Incarnation::from_bytes(array::from_fn(|i| i as u8 * 17)), write: 1 << 63 };
    claimed.ttl = Ttl::new(odd).unwrap();
    scene.claim(None, &claimed).await;
    assert_eq!(scene.stands().await, held(&claimed));

    let renewed = Entry {
        ttl: Ttl::new(Ttl::MAX).unwrap(),
        ..claimed.renewed(Version { write: u64::MAX, ..claimed.version })
    };
    scene.renew(&claimed, &renewed).await;
    assert_eq!(scene.stands().await, held(&renewed));

    let mut taken = scene.entry(2, 2);
    taken.version = Version { incarnation: Incarnation::from_bytes([0; 16]), write: 0 };
    scene.take_over(&renewed, &taken).await;
    assert_eq!(scene.stands().await, held(&taken));
}

/// A read that begins after the answer of a write sees it, through every handle.
pub async fn a_read_sees_every_write_that_was_answered_before_it(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let mut last_epoch = None;
    for epoch in 1..=50 {
        let mut standing = scene.entry(epoch as u8, epoch);
        scene.claim(last_epoch, &standing).await;
        assert_eq!(scene.stands().await, held(&standing), "after a claim");
        let renewed = next(&standing);
        scene.renew(&standing, &renewed).await;
        standing = renewed;
        assert_eq!(scene.stands().await, held(&standing), "after a renewal");
        assert_eq!(
            ageless(scene.here.get(&scene.key).await.unwrap()),
            held(&standing),
            "where it was written"
        );
        scene.release(&standing).await;
        assert_eq!(scene.stands().await, vacant_slot(Some(epoch)), "after a release");
        last_epoch = Some(epoch);
    }
}
