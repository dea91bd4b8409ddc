//! The count of batches: what changes it and what it survives.

use super::{
    StorageUnderTest,
    calls::{self, documents},
    stage::{Stage, delete, document, id, put, put_if, version},
};
use crate::{
    BatchOutcome, Claim, OnlyIf, Slot, Swap,
    testing::contract::scene::{ageless, held, mismatch, next, not_deleted, refused, vacant, vacant_slot},
};

/// The version of a document is the number of the batch that last put it.
pub async fn a_document_has_the_version_of_its_batch(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    stage.written(0, &[put("a", "1"), put("b", "1"), put("c", "1")]).await;
    // The same bytes again are another version.
    stage.written(1, &[put("b", "1")]).await;
    stage.written(2, &[put("c", "3"), delete("x")]).await;
    let expected = [document("a", 1, "1"), document("b", 2, "1"), document("c", 3, "3")];
    assert_eq!(stage.shown().await, expected);
    for document in expected {
        assert_eq!(stage.document(&document.id).await.as_ref(), Some(&document));
    }
}

/// A document that was deleted and put again has another version, and conditions distinguish them.
pub async fn a_document_that_was_put_again_has_another_version(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    stage.written(0, &[put("a", "same")]).await;
    stage.written(1, &[delete("a")]).await;
    assert_eq!(stage.document(&id("a")).await, None);
    stage.written(2, &[put("a", "same")]).await;
    assert_eq!(stage.document(&id("a")).await, Some(document("a", 3, "same")));
    for stale in [1, 2] {
        let update = put_if("a", "late", OnlyIf::Version(version(stale)));
        stage.refuses("the document before", &stage.fence(3), &[update]).await;
    }
    stage.written(3, &[put_if("a", "next", OnlyIf::Version(version(3)))]).await;
}

/// An empty batch and one that deletes a missing document count as any other.
pub async fn an_empty_batch_counts(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    stage.written(0, &[]).await;
    assert_eq!(stage.last().await, 1);
    stage.refuses("again", &stage.fence(0), &[]).await;
    stage.written(1, &[delete("a")]).await;
    stage.written(2, &[]).await;
    assert_eq!((stage.last().await, stage.shown().await), (3, vec![]));
    stage.written(3, &[put("a", "4")]).await;
    assert_eq!(stage.shown().await, [document("a", 4, "4")]);
}

/// Count and documents survive a change of leader, by release and by take-over.
pub async fn the_count_survives_release_and_take_over(storage: &impl StorageUnderTest) {
    let mut stage = Stage::led(storage).await;
    for number in (0..9).step_by(3) {
        stage.written(number, &[put("a", number.to_string())]).await;
        stage.scene.release(&stage.entry).await;
        assert_eq!(stage.last().await, number + 1, "released");
        let last_epoch = stage.entry.epoch.get();
        stage.entry = stage.scene.entry(1, last_epoch + 1);
        stage.scene.claim(Some(last_epoch), &stage.entry).await;
        assert_eq!(stage.last().await, number + 1, "claimed");
        stage.written(number + 1, &[put("b", number.to_string())]).await;
        stage.taken_over().await;
        assert_eq!(stage.last().await, number + 2, "taken over");
        stage.written(number + 2, &[delete("b")]).await;
        assert_eq!(stage.shown().await, [document("a", number + 1, number.to_string())]);
    }
}

/// Closing every handle loses neither documents nor the count, also if all documents were deleted.
pub async fn the_count_survives_closing_and_reopening(storage: &impl StorageUnderTest) {
    let (stage, bare) = (Stage::led_at(storage, b"full").await, Stage::led_at(storage, b"bare").await);
    stage.written(0, &[put("a", "1"), put("b", "1")]).await;
    stage.written(1, &[put("a", "2")]).await;
    bare.written(0, &[put("a", "1")]).await;
    bare.written(1, &[delete("a")]).await;
    bare.scene.release(&bare.entry).await;
    for handle in [&stage.scene.here, &stage.scene.there, &bare.scene.here, &bare.scene.there] {
        handle.close().await;
    }
    let mut reopened = Stage::empty(storage).await;
    reopened.scene.key = stage.scene.key.clone();
    assert_eq!(reopened.last().await, 2);
    assert_eq!(reopened.shown().await, [document("a", 2, "2"), document("b", 1, "1")]);
    reopened.written(2, &[put("b", "3")]).await;
    reopened.scene.key = bare.scene.key.clone();
    assert_eq!((reopened.last().await, reopened.shown().await), (2, vec![]));
    reopened.refuses("released", &reopened.fence(2), &[]).await;
}

/// Claims, renewals and releases, applied or refused, change neither the count nor the documents.
pub async fn writes_of_records_leave_documents_alone(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    stage.written(0, &[put("a", "1")]).await;
    stage.written(1, &[put("b", "2")]).await;
    let expected = (2, vec![document("a", 1, "1"), document("b", 2, "2")]);
    let unchanged = async |what| assert_eq!((stage.last().await, stage.shown().await), expected, "{what}");
    let (scene, first) = (&stage.scene, &stage.entry);
    let stranger = scene.entry(9, 9);

    let renewed = next(first);
    scene.renew(first, &renewed).await;
    unchanged("a renewal").await;
    mismatch(scene.here.compare_and_swap(&scene.key, first, &renewed).await.unwrap());
    unchanged("a refused renewal").await;
    refused(scene.here.insert_if_not_exist(&scene.key, vacant(None), &stranger).await.unwrap());
    unchanged("a refused claim").await;
    refused(scene.here.take_over(&scene.key, first, &stranger).await.unwrap());
    unchanged("a refused take-over").await;
    let release = scene.here.compare_and_delete(&scene.key, stranger.incarnation(), stranger.epoch).await;
    not_deleted(release.unwrap());
    unchanged("a refused release").await;
    scene.take_over(&renewed, &stranger).await;
    unchanged("a take-over").await;
    scene.release(&stranger).await;
    unchanged("a release").await;
    scene.claim(Some(9), &scene.entry(1, 10)).await;
    unchanged("a claim").await;
}

/// A batch does not change the record: neither its version nor its epoch.
pub async fn batches_leave_the_record_alone(storage: &impl StorageUnderTest) {
    let mut stage = Stage::led(storage).await;
    stage.written(0, &[put("a", "1")]).await;
    assert_eq!(stage.scene.stands().await, held(&stage.entry));
    let state = calls::state(&*stage.scene.there, &stage.scene.key).await;
    assert_eq!(ageless(state.slot), held(&stage.entry));
    let renewed = next(&stage.entry);
    stage.scene.renew(&stage.entry, &renewed).await;
    stage.entry = renewed;
    stage.written(1, &[delete("a"), put("b", "2")]).await;
    stage.refuses("a late one", &stage.fence(0), &[put("a", "1")]).await;
    assert_eq!(stage.scene.stands().await, held(&stage.entry));
    stage.taken_over().await;
    stage.written(2, &[]).await;
    assert_eq!(stage.scene.stands().await, held(&stage.entry));
    stage.scene.release(&stage.entry).await;
    stage.refuses("released", &stage.fence(3), &[put("a", "1")]).await;
    assert_eq!(stage.scene.stands().await, vacant_slot(Some(6)));
    let state = calls::state(&*stage.scene.there, &stage.scene.key).await;
    assert_eq!(state.slot, vacant_slot(Some(6)));
}

/// Concurrent renewals and batches of one leader don't refuse each other.
pub async fn renewals_and_batches_do_not_refuse_each_other(storage: &impl StorageUnderTest) {
    const ROUNDS: u64 = 50;
    let stage = Stage::led(storage).await;
    let scene = &stage.scene;
    let renewals = async {
        let mut standing = stage.entry.clone();
        for _ in 0..ROUNDS {
            let renewed = next(&standing);
            // An earlier attempt was applied; any other reason would show another record.
            loop {
                match scene.here.compare_and_swap(&scene.key, &standing, &renewed).await {
                    Ok(Swap::Swapped) => break,
                    Ok(Swap::Mismatch(Slot::Held { entry, .. })) if entry == renewed => break,
                    Ok(Swap::Mismatch(stands)) => panic!("{stands:?} for {standing:?}"),
                    Err(crate::WriteError::NotApplied(_) | crate::WriteError::Unknown(_)) => {
                        tokio::task::yield_now().await;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            standing = renewed;
        }
        standing
    };
    let batches = async {
        for number in 0..ROUNDS {
            let batch = [put("a", number.to_string()), put(number.to_be_bytes(), "x")];
            let outcome = calls::settled(&*scene.there, &scene.key, &stage.fence(number), &batch).await;
            assert_eq!(outcome, BatchOutcome::Written, "batch {number}");
        }
    };
    let (renewed, ()) = futures_util::future::join(renewals, batches).await;
    assert_eq!(scene.stands().await, held(&renewed));
    assert_eq!((stage.last().await, stage.shown().await.len() as u64), (ROUNDS, ROUNDS + 1));
}

/// Each slot of a storage has its own count.
pub async fn every_slot_has_a_count_of_its_own(storage: &impl StorageUnderTest) {
    let (one, other) = (Stage::led_at(storage, b"one").await, Stage::led_at(storage, b"other").await);
    one.written(0, &[put("a", "one")]).await;
    one.written(1, &[put("a", "two")]).await;
    assert_eq!((other.last().await, other.shown().await), (0, vec![]));
    other.written(0, &[put("a", "other")]).await;
    let batch = [put("b", "one")];
    let outcome =
        documents(&*other.scene.here).write_documents(&other.scene.key, &other.fence(2), &batch).await;
    assert_eq!(outcome.unwrap(), BatchOutcome::Refused);
    assert_eq!((one.last().await, one.shown().await), (2, vec![document("a", 2, "two")]));
    assert_eq!((other.last().await, other.shown().await), (1, vec![document("a", 1, "other")]));
    let claim = one.scene.here.insert_if_not_exist(&storage.key(b"third"), vacant(None), &one.entry).await;
    assert_eq!(claim.unwrap(), Claim::Claimed);
    assert_eq!(calls::state(&*one.scene.there, &storage.key(b"third")).await.last, version(0));
}
