#![allow(missing_docs, reason = "the name of a case says what it shows")]

use super::{
    StorageUnderTest,
    stage::{Stage, delete, delete_if, document, documents, id, put, put_if, read_state, settled, version},
};
use crate::{
    BatchOutcome, Claim, Delete, DocumentWrite, Fence, Key, OnlyIf, Slot, Swap,
    testing::contract::scene::{held, next, vacant, vacant_slot},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Here,
    Deleted,
    Never,
}

/// Each condition, and whether it holds if the document has version 1, and if it does not exist.
const CONDITIONS: [(OnlyIf, bool, bool); 6] = [
    (OnlyIf::Always, true, true),
    (OnlyIf::Absent, false, true),
    (OnlyIf::Version(version(1)), true, false),
    // The version of another batch, of none, of a later one.
    (OnlyIf::Version(version(2)), false, false),
    (OnlyIf::Version(version(0)), false, false),
    (OnlyIf::Version(version(3)), false, false),
];

pub async fn a_put_applies_exactly_if_its_condition_holds(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    every_condition(&stage, |name, only_if| put_if(name, "put", only_if)).await;
}

pub async fn a_delete_applies_exactly_if_its_condition_holds(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    every_condition(&stage, delete_if).await;
}

async fn every_condition<K: Key>(stage: &Stage<K>, write: impl Fn(String, OnlyIf) -> DocumentWrite) {
    let name = |standing: Standing, number: usize| format!("{standing:?} {number}");
    let names = |standing| (0..CONDITIONS.len()).map(move |number| name(standing, number));
    let puts: Vec<_> =
        names(Standing::Here).chain(names(Standing::Deleted)).map(|name| put(name, "before")).collect();
    let deletes: Vec<_> = names(Standing::Deleted).map(delete).collect();
    stage.written(0, &puts).await;
    stage.written(1, &deletes).await;
    let mut last = 2;
    for standing in [Standing::Here, Standing::Deleted, Standing::Never] {
        for (number, (only_if, if_here, if_not)) in CONDITIONS.into_iter().enumerate() {
            let name = name(standing, number);
            let write = write(name.clone(), only_if);
            let what = format!("{standing:?}, {write:?}");
            if if standing == Standing::Here { if_here } else { if_not } {
                stage.written(last, std::slice::from_ref(&write)).await;
                last += 1;
                let expected = match write {
                    DocumentWrite::Put { .. } => Some(document(&name, last, "put")),
                    DocumentWrite::Delete { .. } => None,
                };
                assert_eq!(stage.document(&id(&name)).await, expected, "{what}");
            } else {
                stage.refuses(&what, &stage.fence(last), &[write]).await;
            }
        }
    }
    assert_eq!(stage.last().await, last);
}

pub async fn one_failing_condition_refuses_the_batch(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    stage.written(0, &[put("a", "1"), put("b", "1")]).await;
    let failing = [
        put_if("a", "2", OnlyIf::Absent),
        put_if("a", "2", OnlyIf::Version(version(2))),
        put_if("x", "2", OnlyIf::Version(version(1))),
        delete_if("a", OnlyIf::Absent),
        delete_if("a", OnlyIf::Version(version(2))),
        delete_if("x", OnlyIf::Version(version(1))),
    ];
    for failing in failing {
        let holding =
            [put("c", "2"), put_if("b", "2", OnlyIf::Version(version(1))), put_if("d", "2", OnlyIf::Absent)];
        for position in 0..=holding.len() {
            let mut batch = holding.to_vec();
            batch.insert(position, failing.clone());
            stage.refuses(&format!("{failing:?} at {position}"), &stage.fence(1), &batch).await;
        }
    }
    assert_eq!(stage.shown().await, [document("a", 1, "1"), document("b", 1, "1")]);
    let all_hold = [
        put_if("a", "2", OnlyIf::Version(version(1))),
        delete_if("b", OnlyIf::Version(version(1))),
        put_if("c", "2", OnlyIf::Absent),
        delete_if("d", OnlyIf::Absent),
    ];
    stage.written(1, &all_hold).await;
    assert_eq!(stage.shown().await, [document("a", 2, "2"), document("c", 2, "2")]);
}

pub async fn a_document_has_the_version_of_its_batch(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    stage.written(0, &[put("a", "1"), put("b", "1"), put("c", "1")]).await;
    stage.written(1, &[put("b", "1")]).await;
    stage.written(2, &[put("c", "3"), delete("x")]).await;
    let expected = [document("a", 1, "1"), document("b", 2, "1"), document("c", 3, "3")];
    assert_eq!(stage.shown().await, expected);
    for document in expected {
        assert_eq!(stage.document(&document.id).await.as_ref(), Some(&document));
    }
}

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
    let swap = scene.here.compare_and_swap(&scene.key, first, &renewed).await.unwrap();
    assert!(matches!(swap, Swap::Mismatch(_)));
    unchanged("a refused renewal").await;
    let claim = scene.here.insert_if_not_exist(&scene.key, vacant(None), &stranger).await.unwrap();
    assert!(matches!(claim, Claim::Refused(_)));
    unchanged("a refused claim").await;
    let claim = scene.here.take_over(&scene.key, first, &stranger).await.unwrap();
    assert!(matches!(claim, Claim::Refused(_)));
    unchanged("a refused take-over").await;
    let release = scene.here.compare_and_delete(&scene.key, stranger.incarnation(), stranger.epoch).await;
    assert!(matches!(release.unwrap(), Delete::Mismatch(_)));
    unchanged("a refused release").await;
    scene.take_over(&renewed, &stranger).await;
    unchanged("a take-over").await;
    scene.release(&stranger).await;
    unchanged("a release").await;
    scene.claim(Some(9), &scene.entry(1, 10)).await;
    unchanged("a claim").await;
}

pub async fn batches_leave_the_record_alone(storage: &impl StorageUnderTest) {
    let mut stage = Stage::led(storage).await;
    stage.written(0, &[put("a", "1")]).await;
    assert_eq!(stage.scene.stands().await, held(&stage.entry));
    let state = read_state(&*stage.scene.there, &stage.scene.key).await;
    assert_eq!(state.slot, held(&stage.entry));
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
    let state = read_state(&*stage.scene.there, &stage.scene.key).await;
    assert_eq!(state.slot, vacant_slot(Some(6)));
}

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
            let outcome = settled(&*scene.there, &scene.key, &stage.fence(number), &batch).await;
            assert_eq!(outcome, BatchOutcome::Written, "batch {number}");
        }
    };
    let (renewed, ()) = futures_util::future::join(renewals, batches).await;
    assert_eq!(scene.stands().await, held(&renewed));
    assert_eq!((stage.last().await, stage.shown().await.len() as u64), (ROUNDS, ROUNDS + 1));
}

pub async fn every_slot_has_a_count_of_its_own(storage: &impl StorageUnderTest) {
    let (one, other) = (Stage::led_at(storage, b"one").await, Stage::led_at(storage, b"other").await);
    one.written(0, &[put("a", "one")]).await;
    one.written(1, &[put("a", "two")]).await;
    assert_eq!((other.last().await, other.shown().await), (0, vec![]));
    other.written(0, &[put("a", "other")]).await;
    other.refuses("the count of another slot", &other.fence(2), &[put("b", "one")]).await;
    assert_eq!((one.last().await, one.shown().await), (2, vec![document("a", 2, "two")]));
    assert_eq!((other.last().await, other.shown().await), (1, vec![document("a", 1, "other")]));
    let claim = one.scene.here.insert_if_not_exist(&storage.key(b"third"), vacant(None), &one.entry).await;
    assert_eq!(claim.unwrap(), Claim::Claimed);
    assert_eq!(read_state(&*one.scene.there, &storage.key(b"third")).await.last, version(0));
}

/// A copy of a batch is refused, at once and after later batches. Shows I2.
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

pub async fn the_second_batch_after_the_same_one_is_refused(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    for number in 0..3 {
        stage.written(number, &[put("a", "first")]).await;
        // Another document, so that no version refuses the second batch.
        stage.refuses("the second", &stage.fence(number), &[put("b", "second")]).await;
    }
    assert_eq!(stage.shown().await, [document("a", 3, "first")]);
}

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

/// A deposed leader's batches in flight arrive in any order, once or twice, before or between the next one's. Shows I2.
pub async fn batches_in_flight_of_a_deposed_leader_are_refused(storage: &impl StorageUnderTest) {
    for (name, by_take_over) in [(&b"taken over"[..], true), (b"handed over", false)] {
        let mut stage = Stage::led_at(storage, name).await;
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
