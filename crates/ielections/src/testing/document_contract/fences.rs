#![allow(missing_docs, reason = "the name of a case says what it shows")]

use super::{
    StorageUnderTest,
    stage::{Stage, delete, document, documents, fence, id, put, version},
};
use crate::{
    DocumentLimits, DocumentWrite, Epoch, Fence, Incarnation, Key, ReadError, WriteError,
    testing::contract::scene::next,
};

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

/// Each wrong part of the fence refuses a batch: with documents, without, and with conditions that hold. Shows I2.
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

pub async fn batches_in_a_slot_never_led_are_refused(storage: &impl StorageUnderTest) {
    let stage = Stage::empty(storage).await;
    assert_eq!((stage.last().await, stage.shown().await), (0, vec![]));
    for batch in [&[put("a", "1")][..], &[delete("a")], &[]] {
        stage.refuses("never led", &stage.fence(0), batch).await;
    }
}

pub async fn batches_after_a_release_are_refused(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    stage.written(0, &[put("a", "1")]).await;
    stage.scene.release(&stage.entry).await;
    for batch in [&[put("a", "late")][..], &[put("b", "late")], &[delete("a")], &[]] {
        stage.refuses("released", &stage.fence(1), batch).await;
    }
    assert_eq!(stage.shown().await, [document("a", 1, "1")]);
}

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

/// The largest limit that a test can reach in memory and time.
const MOST_BYTES: usize = 64 << 20;
const MOST_DOCUMENTS: usize = 1 << 16;

/// The limits of the storage, as far as a test can reach them.
pub(super) fn limits<K: Key>(stage: &Stage<K>) -> DocumentLimits {
    let limits = documents(&*stage.scene.here).document_limits();
    DocumentLimits {
        max_id_bytes: limits.max_id_bytes.min(MOST_BYTES),
        max_body_bytes: limits.max_body_bytes.min(MOST_BYTES),
        max_batch: limits.max_batch.min(MOST_DOCUMENTS),
        max_batch_bytes: limits.max_batch_bytes.min(2 * MOST_BYTES),
        max_page: limits.max_page.min(MOST_DOCUMENTS),
    }
}

fn number(number: usize) -> [u8; 4] {
    (number as u32).to_be_bytes()
}

fn batch_of(bytes: usize, limits: &DocumentLimits) -> Option<Vec<DocumentWrite>> {
    let id_bytes = number(0).len();
    let count = bytes.div_ceil(id_bytes + limits.max_body_bytes);
    let (each, left) = ((bytes - count * id_bytes) / count, (bytes - count * id_bytes) % count);
    let body = |place: usize| vec![place as u8; each + usize::from(place < left)];
    (count <= limits.max_batch).then(|| (0..count).map(|place| put(number(place), body(place))).collect())
}

pub async fn batches_as_large_as_the_limits_are_applied(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    let limits = limits(&stage);
    let DocumentLimits { max_id_bytes, max_body_bytes, max_batch, max_batch_bytes, max_page } = limits;
    assert!([max_id_bytes, max_body_bytes, max_batch, max_page].into_iter().all(|limit| limit > 0));
    assert!(max_batch_bytes >= max_id_bytes + max_body_bytes, "the largest document fits into no batch");
    let (longest_id, longest_body) = (vec![b'x'; limits.max_id_bytes], vec![b'y'; limits.max_body_bytes]);
    stage.written(0, &[put(&longest_id, &longest_body)]).await;
    assert!(stage.document(&id(&longest_id)).await.is_some_and(|document| document.body == longest_body));

    let most: Vec<_> = (0..limits.max_batch).map(|place| put(number(place), number(place))).collect();
    stage.written(1, &most).await;
    let shown = stage.shown().await;
    assert_eq!(shown.len(), most.len() + 1);
    assert!(shown.iter().take(most.len()).all(|document| document.body == document.id.as_bytes()));
    let gone: Vec<_> = (0..limits.max_batch).map(|place| delete(number(place))).collect();
    stage.written(2, &gone).await;
    assert_eq!(stage.shown().await.len(), 1);

    if let Some(heaviest) = batch_of(limits.max_batch_bytes, &limits) {
        assert_eq!(heaviest.iter().map(DocumentWrite::bytes).sum::<usize>(), limits.max_batch_bytes);
        stage.written(3, &heaviest).await;
        for (write, shown) in heaviest.iter().zip(stage.shown().await) {
            let DocumentWrite::Put { id, body, .. } = write else { panic!("{write:?}") };
            assert!(*id == shown.id && *body == shown.body, "{id:?} is not as it was written");
        }
    }
}

pub async fn batches_beyond_a_limit_are_refused_for_good(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    let limits = limits(&stage);
    let too_long = vec![b'x'; limits.max_id_bytes + 1];
    let too_many = (0..=limits.max_batch).map(|place| delete(number(place))).collect();
    let mut beyond = vec![
        (limits.max_id_bytes, vec![put("a", "1"), put(&too_long, "")]),
        (limits.max_id_bytes, vec![delete(&too_long)]),
        (limits.max_body_bytes, vec![put("a", vec![b'y'; limits.max_body_bytes + 1])]),
        (limits.max_batch, too_many),
    ];
    beyond.extend(batch_of(limits.max_batch_bytes + 1, &limits).map(|batch| (limits.max_batch_bytes, batch)));
    // A limit that the test has reduced is not one of the storage.
    let stated = documents(&*stage.scene.here).document_limits();
    let DocumentLimits { max_id_bytes, max_body_bytes, max_batch, max_batch_bytes, .. } = stated;
    beyond.retain(|(limit, _)| [max_id_bytes, max_body_bytes, max_batch, max_batch_bytes].contains(limit));
    let mut beyond: Vec<_> = beyond.into_iter().map(|(limit, batch)| (limit.to_string(), batch)).collect();
    beyond.push(("twice".to_owned(), vec![put("a", "1"), put("b", "1"), delete("a")]));
    for (limit, batch) in beyond {
        let outcome =
            documents(&*stage.scene.here).write_documents(&stage.scene.key, &stage.fence(0), &batch).await;
        let Err(WriteError::Fatal(cause)) = outcome else { panic!("{outcome:?} beyond {limit}") };
        assert!(cause.to_string().contains(&limit), "{cause} does not speak of {limit}");
    }
    let read = documents(&*stage.scene.here).document(&stage.scene.key, &id(&too_long)).await;
    let Err(ReadError::Fatal(cause)) = read else { panic!("{read:?}") };
    assert!(cause.to_string().contains(&limits.max_id_bytes.to_string()), "{cause}");
    assert_eq!((stage.last().await, stage.shown().await), (0, vec![]));
}
