//! Claims, renewals and releases, and the epochs that survive all of them.
#![allow(missing_docs, reason = "the name of a case says what it shows")]

use super::{
    StorageUnderTest,
    scene::{Scene, held, next, others_than_next, vacant, vacant_slot},
};
use crate::{
    Claim, Delete, Entry, Epoch, Incarnation, Key, ReadError, Slot, Swap, Ttl, TtlStorage, Version,
    WriteError,
};
use futures_util::future::BoxFuture;
use std::{array, mem, time::Duration};
use vvm_clock::{Clock, SystemClock};

pub async fn a_claim_takes_a_slot_that_was_never_led(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    assert_eq!(scene.stands().await, vacant_slot(None));
    let entry = scene.entry(1, 1);
    scene.claim(None, &entry).await;
    assert_eq!(scene.stands().await, held(&entry));
}

pub async fn a_claim_takes_a_released_slot(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let (first, second) = (scene.entry(1, 1), scene.entry(2, 2));
    scene.claim(None, &first).await;
    scene.release(&first).await;
    scene.claim(Some(1), &second).await;
    assert_eq!(scene.stands().await, held(&second));
}

pub async fn a_claim_of_a_held_slot_is_refused(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let (first, second, third) = (scene.entry(1, 1), scene.entry(2, 2), scene.entry(3, 3));
    scene.claim(None, &first).await;
    scene.release(&first).await;
    scene.claim(Some(1), &second).await;
    for last_epoch in [None, Some(1), Some(2)] {
        let claim = scene.here.insert_if_not_exist(&scene.key, vacant(last_epoch), &third).await.unwrap();
        assert_eq!(claim, Claim::Refused(held(&second)), "claimed as vacant since {last_epoch:?}");
        assert_eq!(scene.stands().await, held(&second));
    }
}

pub async fn a_claim_that_names_a_wrong_last_epoch_is_refused(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let entry = scene.entry(1, 9);
    let claim = scene.here.insert_if_not_exist(&scene.key, vacant(Some(5)), &entry).await.unwrap();
    assert_eq!(claim, Claim::Refused(vacant_slot(None)));
    assert_eq!(scene.stands().await, vacant_slot(None));

    let first = scene.entry(2, 5);
    scene.claim(None, &first).await;
    scene.release(&first).await;
    for wrong in [None, Some(4), Some(6)] {
        let claim = scene.here.insert_if_not_exist(&scene.key, vacant(wrong), &entry).await.unwrap();
        assert_eq!(claim, Claim::Refused(vacant_slot(Some(5))), "claimed as vacant since {wrong:?}");
        assert_eq!(scene.stands().await, vacant_slot(Some(5)));
    }
}

pub async fn a_late_claim_is_refused_after_the_release(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let (first, second) = (scene.entry(1, 1), scene.entry(2, 2));
    scene.claim(None, &first).await;
    scene.release(&first).await;
    let late = scene.here.insert_if_not_exist(&scene.key, vacant(None), &first).await.unwrap();
    assert_eq!(late, Claim::Refused(vacant_slot(Some(1))));
    scene.claim(Some(1), &second).await;
    scene.release(&second).await;
    let late = scene.here.insert_if_not_exist(&scene.key, vacant(Some(1)), &second).await.unwrap();
    assert_eq!(late, Claim::Refused(vacant_slot(Some(2))));
    assert_eq!(scene.stands().await, vacant_slot(Some(2)));
}

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

pub async fn a_take_over_of_another_version_is_refused(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let (first, intruder) = (scene.entry(1, 1), scene.entry(2, 9));
    let claim = scene.here.take_over(&scene.key, &first, &intruder).await.unwrap();
    assert_eq!(claim, Claim::Refused(vacant_slot(None)), "never led");

    scene.claim(None, &first).await;
    let standing = next(&first);
    scene.renew(&first, &standing).await;
    for (what, observed) in others_than_next(&first) {
        let claim = scene.here.take_over(&scene.key, &observed, &intruder).await.unwrap();
        assert_eq!(claim, Claim::Refused(held(&standing)), "{what}");
        assert_eq!(scene.stands().await, held(&standing), "{what}");
    }

    scene.release(&standing).await;
    let claim = scene.here.take_over(&scene.key, &standing, &intruder).await.unwrap();
    assert_eq!(claim, Claim::Refused(vacant_slot(Some(1))), "released");
    assert_eq!(scene.stands().await, vacant_slot(Some(1)));
}

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

pub async fn a_renewal_of_another_version_is_refused(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let first = scene.entry(1, 1);
    let swap = scene.here.compare_and_swap(&scene.key, &first, &next(&first)).await.unwrap();
    assert_eq!(swap, Swap::Mismatch(vacant_slot(None)), "never led");

    scene.claim(None, &first).await;
    let standing = next(&first);
    scene.renew(&first, &standing).await;
    for (what, assumed) in others_than_next(&first) {
        let renewed = assumed.renewed(Version { write: 7, ..assumed.version });
        let swap = scene.here.compare_and_swap(&scene.key, &assumed, &renewed).await.unwrap();
        assert_eq!(swap, Swap::Mismatch(held(&standing)), "{what}");
        assert_eq!(scene.stands().await, held(&standing), "{what}");
    }

    scene.release(&standing).await;
    let swap = scene.here.compare_and_swap(&scene.key, &standing, &next(&standing)).await.unwrap();
    assert_eq!(swap, Swap::Mismatch(vacant_slot(Some(1))), "released");
    assert_eq!(scene.stands().await, vacant_slot(Some(1)));
}

pub async fn a_renewal_is_not_applied_twice(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let first = scene.entry(1, 1);
    let (second, third) = (next(&first), next(&next(&first)));
    scene.claim(None, &first).await;
    scene.renew(&first, &second).await;
    let again = scene.here.compare_and_swap(&scene.key, &first, &second).await.unwrap();
    assert_eq!(again, Swap::Mismatch(held(&second)));
    scene.renew(&second, &third).await;
    let again = scene.here.compare_and_swap(&scene.key, &first, &second).await.unwrap();
    assert_eq!(again, Swap::Mismatch(held(&third)));
    assert_eq!(scene.stands().await, held(&third));
}

/// A leader can release without knowing whether its last renewal was applied.
pub async fn a_release_applies_to_any_version(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let first = scene.entry(1, 1);
    scene.claim(None, &first).await;
    scene.renew(&first, &next(&first)).await;
    scene.release(&first).await;
    assert_eq!(scene.stands().await, vacant_slot(Some(1)));
}

pub async fn a_release_of_another_incarnation_or_epoch_is_refused(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let entry = scene.entry(1, 5);
    scene.claim(None, &entry).await;
    let stranger = Incarnation::from_bytes([2; 16]);
    for (incarnation, epoch) in [(stranger, 5), (entry.incarnation(), 4), (entry.incarnation(), 6)] {
        let epoch = Epoch::new(epoch).unwrap();
        let delete = scene.here.compare_and_delete(&scene.key, incarnation, epoch).await.unwrap();
        assert_eq!(delete, Delete::Mismatch(held(&entry)), "{incarnation:?}, {epoch:?}");
        assert_eq!(scene.stands().await, held(&entry));
    }
}

pub async fn a_release_of_a_vacant_slot_is_refused(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let entry = scene.entry(1, 5);
    let release = || scene.here.compare_and_delete(&scene.key, entry.incarnation(), entry.epoch);
    assert_eq!(release().await.unwrap(), Delete::Mismatch(vacant_slot(None)));
    scene.claim(None, &entry).await;
    scene.release(&entry).await;
    assert_eq!(release().await.unwrap(), Delete::Mismatch(vacant_slot(Some(5))));
    assert_eq!(scene.stands().await, vacant_slot(Some(5)));
}

pub async fn epochs_survive_release(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let mut last_epoch = None;
    for epoch in [1, 2, 1_000_000, 1_790_000_000_000] {
        let entry = scene.entry(1, epoch);
        scene.claim(last_epoch, &entry).await;
        scene.release(&entry).await;
        assert_eq!(scene.stands().await, vacant_slot(Some(epoch)));
        last_epoch = Some(epoch);
    }
}

pub async fn epochs_survive_expiry(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let clock = SystemClock::start().unwrap();
    let (first, second) = (scene.entry(1, 7), scene.entry(2, 8));
    scene.claim(None, &first).await;
    clock.sleep(scene.ttl.get() * 2).await;
    assert_eq!(scene.stands().await.last_epoch(), Some(first.epoch));
    let claim = scene.here.insert_if_not_exist(&scene.key, vacant(None), &second).await.unwrap();
    assert!(matches!(&claim, Claim::Refused(slot) if slot.last_epoch() == Some(first.epoch)), "{claim:?}");
    scene.take_over(&first, &second).await;
    scene.release(&second).await;
    assert_eq!(scene.stands().await, vacant_slot(Some(8)));
}

pub async fn epochs_survive_closing_and_reopening(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let (first, key, other) = (scene.entry(1, 7), scene.key.clone(), storage.key(b"other"));
    let renewed = next(&first);
    scene.claim(None, &first).await;
    scene.renew(&first, &renewed).await;
    let released = scene.entry(2, 9);
    scene.here.insert_if_not_exist(&other, vacant(None), &released).await.unwrap();
    scene.here.compare_and_delete(&other, released.incarnation(), released.epoch).await.unwrap();
    scene.here.close().await;
    scene.there.close().await;

    let reopened = storage.open().await;
    assert_eq!(reopened.get(&key).await.unwrap(), held(&renewed));
    assert_eq!(reopened.get(&other).await.unwrap(), vacant_slot(Some(9)));
    let late = reopened.insert_if_not_exist(&other, vacant(None), &scene.entry(3, 1)).await.unwrap();
    assert_eq!(late, Claim::Refused(vacant_slot(Some(9))));
}

pub async fn the_smallest_and_the_largest_epoch_are_kept(storage: &impl StorageUnderTest) {
    let scene = Scene::set(storage).await;
    let mut last_epoch = None;
    for epoch in [1, u64::from(u32::MAX) + 1, Epoch::MAX] {
        let entry = scene.entry(1, epoch);
        scene.claim(last_epoch, &entry).await;
        assert_eq!(scene.stands().await, held(&entry));
        scene.release(&entry).await;
        assert_eq!(scene.stands().await, vacant_slot(Some(epoch)));
        last_epoch = Some(epoch);
    }
}

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

pub async fn a_read_sees_every_write_that_was_answered_before_it(storage: &impl StorageUnderTest) {
    let mut scene = Scene::set(storage).await;
    let mut last_epoch = None;
    for epoch in 1..=50 {
        // Both handles write by turns: one may show what it wrote last itself.
        mem::swap(&mut scene.here, &mut scene.there);
        let claimed = scene.entry(epoch as u8, epoch);
        scene.claim(last_epoch, &claimed).await;
        scene.both_show(held(&claimed), "after a claim").await;
        let renewed = next(&claimed);
        scene.renew(&claimed, &renewed).await;
        scene.both_show(held(&renewed), "after a renewal").await;
        scene.release(&renewed).await;
        scene.both_show(vacant_slot(Some(epoch)), "after a release").await;
        last_epoch = Some(epoch);
    }
}

pub(super) enum Settled {
    Applied,
    Refused(Slot),
    /// It may still be applied.
    Undecided(Slot),
}

pub(in crate::testing) async fn answered<'read, T>(
    read: impl Fn() -> BoxFuture<'read, Result<T, ReadError>>,
) -> T {
    loop {
        match read().await {
            Ok(answer) => return answer,
            Err(ReadError::Unavailable(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

pub(super) async fn standing<K: Key>(handle: &dyn TtlStorage<K>, key: &K) -> Slot {
    answered(|| handle.get(key)).await
}

pub(super) async fn settled<K: Key>(
    outcome: Result<Result<(), Slot>, WriteError>,
    ours: &Entry,
    handle: &dyn TtlStorage<K>,
    key: &K,
) -> Settled {
    match outcome {
        Ok(Ok(())) => Settled::Applied,
        Ok(Err(slot)) => Settled::Refused(slot),
        Err(WriteError::NotApplied(_)) => Settled::Refused(standing(handle, key).await),
        Err(WriteError::Unknown(_)) => match standing(handle, key).await {
            slot if slot.entry() == Some(ours) => Settled::Applied,
            slot => Settled::Undecided(slot),
        },
        Err(error) => panic!("{error}"),
    }
}

pub(super) fn of_claim(claim: Claim) -> Result<(), Slot> {
    match claim {
        Claim::Claimed => Ok(()),
        Claim::Refused(slot) => Err(slot),
    }
}

pub(super) fn of_swap(swap: Swap) -> Result<(), Slot> {
    match swap {
        Swap::Swapped => Ok(()),
        Swap::Mismatch(slot) => Err(slot),
    }
}
