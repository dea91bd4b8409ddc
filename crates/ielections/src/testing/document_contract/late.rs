//! Batches that arrive twice, out of order, or late: each is applied at most once, in order, and never after
//! the next claim.

use super::{
    StorageUnderTest,
    calls::documents,
    stage::{Stage, document, put},
};
use crate::{BatchOutcome, DocumentWrite, Fence, Key};

/// A copy of a batch is refused, at once and after later batches.
/// Shows I2.
pub async fn a_batch_that_arrives_twice_is_applied_once(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    let batch = [put("a", "1"), put("b", "1")];
    stage.written(0, &batch).await;
    stage.refuses("the copy of the last batch", &stage.fence(0), &batch).await;
    stage.written(1, &[put("a", "2")]).await;
    stage.refuses("the copy of the one before", &stage.fence(0), &batch).await;
    stage.written(2, &[]).await;
    stage.refuses("the copy of an empty one", &stage.fence(2), &[]).await;
    assert_eq!(stage.shown().await, [document("a", 2, "2"), document("b", 1, "1")]);
}

/// Of two batches after the same one, the first to arrive is applied.
pub async fn the_second_batch_after_the_same_one_is_refused(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    for number in 0..3 {
        stage.written(number, &[put("a", "first")]).await;
        // Another document, so that no version refuses the second batch.
        stage.refuses("the second", &stage.fence(number), &[put("b", "second")]).await;
    }
    assert_eq!(stage.shown().await, [document("a", 3, "first")]);
}

/// A batch is refused until the one before was applied.
pub async fn a_batch_is_applied_only_after_the_one_before(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    let batches: Vec<_> = (0..4_u64).map(|number| [put("a", number.to_string())]).collect();
    for number in (1..4_u8).rev() {
        stage.refuses("too early", &stage.fence(number.into()), &batches[usize::from(number)]).await;
    }
    for (number, batch) in (0..).zip(&batches) {
        stage.written(number, batch).await;
        for (later, batch) in (0..).zip(&batches).filter(|(later, _)| *later != number + 1) {
            stage.refuses("not in its turn", &stage.fence(later), batch).await;
        }
    }
    assert_eq!(stage.shown().await, [document("a", 4, "3")]);
}

/// Batches that were in flight when their leader was deposed arrive in any order, once or twice, before or
/// between the batches of the next leader.
/// Shows I2.
pub async fn batches_in_flight_of_a_deposed_leader_are_refused(storage: &impl StorageUnderTest) {
    for (name, by_take_over) in [(&b"taken over"[..], true), (b"handed over", false)] {
        let mut stage = Stage::led_at(storage, name).await;
        // The first two arrive. Copies of them are in flight with the other three.
        let batch = |number: u64| [put("a", number.to_string()), put(number.to_be_bytes(), "old")];
        let under_way: Vec<_> = (0..5).map(|number| (stage.fence(number), batch(number))).collect();
        stage.written(0, &under_way[0].1).await;
        stage.written(1, &under_way[1].1).await;
        if by_take_over {
            stage.taken_over().await
        } else {
            stage.handed_over().await
        }
        let mut standing = stage.shown().await;
        let is_old = [document(0_u64.to_be_bytes(), 1, "old"), document(1_u64.to_be_bytes(), 2, "old")];
        assert!(is_old.iter().all(|old| standing.contains(old)), "{standing:?}");

        all_arrive(&stage, &under_way).await;
        assert_eq!(stage.shown().await, standing);
        // The next leader continues the count, so that each finds the batch before it at some time.
        for number in 2..7 {
            stage.written(number, &[put("a", "new")]).await;
            standing.retain(|document| document.id.as_bytes() != b"a");
            standing.push(document("a", number + 1, "new"));
            standing.sort_by(|one, other| one.id.cmp(&other.id));
            all_arrive(&stage, &under_way).await;
            assert_eq!((stage.last().await, stage.shown().await), (number + 1, standing.clone()));
        }
    }
}

/// Sends every batch, forwards and backwards, through both handles.
async fn all_arrive<K: Key>(stage: &Stage<K>, under_way: &[(Fence, [DocumentWrite; 2])]) {
    let (forwards, backwards) = (under_way.iter(), under_way.iter().rev());
    for (handle, order) in [
        (&stage.scene.here, forwards.clone().collect::<Vec<_>>()),
        (&stage.scene.there, backwards.collect()),
        (&stage.scene.there, forwards.collect()),
    ] {
        for (fence, batch) in order {
            let outcome = documents(&**handle).write_documents(&stage.scene.key, fence, batch).await.unwrap();
            assert_eq!(outcome, BatchOutcome::Refused, "{fence:?} of a deposed leader");
        }
    }
}
