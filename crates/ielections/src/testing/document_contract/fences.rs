//! The fence: a batch is applied exactly if epoch, incarnation and the batch before match (I2).

use super::{
    StorageUnderTest,
    stage::{Stage, delete, document, fence, id, put, version},
};
use crate::{Epoch, Fence, Incarnation, testing::contract::scene::next};

/// Every handle reads what a leader writes.
pub async fn a_batch_under_its_fence_is_written(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    assert_eq!((stage.last().await, stage.shown().await), (0, vec![]));
    stage.written(0, &[put("b", "2"), put("a", "1")]).await;
    assert_eq!((stage.last().await, stage.document(&id("a")).await), (1, Some(document("a", 1, "1"))));
    assert_eq!(stage.shown().await, [document("a", 1, "1"), document("b", 1, "2")]);

    stage.written(1, &[delete("b"), put("a", "3"), put("c", "4")]).await;
    assert_eq!((stage.last().await, stage.document(&id("b")).await), (2, None));
    assert_eq!(stage.shown().await, [document("a", 2, "3"), document("c", 2, "4")]);
    assert_eq!(stage.document(&id("d")).await, None);
}

/// Each wrong part of the fence refuses a batch: with documents, without, and with conditions that hold.
/// Shows I2.
pub async fn a_fence_with_one_part_wrong_refuses(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    stage.written(0, &[put("a", "1")]).await;
    stage.written(1, &[put("b", "2")]).await;
    let right = stage.fence(2);
    let epoch = |epoch| Epoch::new(epoch).unwrap();
    let mut incarnation = *right.incarnation.as_bytes();
    incarnation[15] ^= 1;
    let wrong = [
        ("the epoch before", Fence { epoch: epoch(4), ..right }),
        ("the epoch after", Fence { epoch: epoch(6), ..right }),
        ("the largest epoch", Fence { epoch: epoch(Epoch::MAX), ..right }),
        ("another incarnation", Fence { incarnation: Incarnation::from_bytes(incarnation), ..right }),
        ("a batch before", stage.fence(1)),
        ("no batch before", stage.fence(0)),
        ("a batch to come", stage.fence(3)),
        ("all batches", Fence { after: version(i64::MAX.cast_unsigned() - 1), ..right }),
    ];
    for (what, fence) in wrong {
        for batch in [&[put("a", "late"), put("c", "late"), delete("b")][..], &[delete("a")], &[]] {
            stage.refuses(what, &fence, batch).await;
        }
    }
    stage.written(2, &[put("c", "3")]).await;
}

/// A fence matches every version of the leadership's record.
pub async fn a_fence_stands_through_renewals(storage: &impl StorageUnderTest) {
    let mut stage = Stage::led(storage).await;
    for number in 0..4 {
        stage.written(number, &[put("a", number.to_string())]).await;
        assert_eq!(stage.shown().await, [document("a", number + 1, number.to_string())]);
        let renewed = next(&stage.entry);
        stage.scene.renew(&stage.entry, &renewed).await;
        stage.entry = renewed;
    }
}

/// Batches in a slot that was never led are refused.
pub async fn batches_in_a_slot_never_led_are_refused(storage: &impl StorageUnderTest) {
    let stage = Stage::empty(storage).await;
    assert_eq!((stage.last().await, stage.shown().await), (0, vec![]));
    for batch in [&[put("a", "1")][..], &[delete("a")], &[]] {
        stage.refuses("never led", &stage.fence(0), batch).await;
    }
}

/// A release ends the fence, also without a new leader.
pub async fn batches_after_a_release_are_refused(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    stage.written(0, &[put("a", "1")]).await;
    stage.scene.release(&stage.entry).await;
    for batch in [&[put("a", "late")][..], &[put("b", "late")], &[delete("a")], &[]] {
        stage.refuses("released", &stage.fence(1), batch).await;
    }
    assert_eq!(stage.shown().await, [document("a", 1, "1")]);
}

/// A take-over ends the fence of the leader before.
pub async fn batches_after_a_take_over_are_refused(storage: &impl StorageUnderTest) {
    let mut stage = Stage::led(storage).await;
    stage.written(0, &[put("a", "1")]).await;
    let late = stage.fence(1);
    stage.taken_over().await;
    for batch in [&[put("a", "late")][..], &[put("b", "late")], &[delete("a")], &[]] {
        stage.refuses("taken over", &late, batch).await;
    }
    stage.written(1, &[put("a", "2")]).await;
    assert_eq!(stage.shown().await, [document("a", 2, "2")]);
}

/// A new claim does not make an earlier fence match again, even for the same holder.
pub async fn a_record_that_is_claimed_again_has_another_fence(storage: &impl StorageUnderTest) {
    let mut stage = Stage::led(storage).await;
    let first = stage.entry.clone();
    stage.written(0, &[put("a", "1")]).await;
    stage.handed_over().await;
    let second = stage.entry.clone();
    let mixtures = [
        ("the first leadership", fence(&first, 1)),
        ("its incarnation", Fence { incarnation: first.incarnation(), ..fence(&second, 1) }),
        ("its epoch", Fence { epoch: first.epoch, ..fence(&second, 1) }),
    ];
    for (what, fence) in mixtures {
        stage.refuses(what, &fence, &[put("a", "late")]).await;
    }
    stage.scene.release(&second).await;
    let again = stage.scene.entry(1, 7);
    assert_eq!(again.incarnation(), first.incarnation());
    stage.scene.claim(Some(6), &again).await;
    stage.refuses("the first leadership, with its own fence", &fence(&first, 1), &[put("a", "late")]).await;
    stage.refuses("the second leadership", &fence(&second, 1), &[put("a", "late")]).await;
    stage.entry = again;
    stage.written(1, &[put("a", "2")]).await;
}
