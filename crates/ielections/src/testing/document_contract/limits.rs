//! Limits: a batch of the largest size is accepted, and a larger one is refused for good, with the limit
//! named.

use super::{
    StorageUnderTest,
    calls::documents,
    stage::{Stage, delete, id, put},
};
use crate::{DocumentLimits, DocumentWrite, Key, ReadError, WriteError};

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

/// Makes a batch of so many bytes, in as few documents as possible; `None` if those are too many.
fn batch_of(bytes: usize, limits: &DocumentLimits) -> Option<Vec<DocumentWrite>> {
    let id_bytes = number(0).len();
    let count = bytes.div_ceil(id_bytes + limits.max_body_bytes);
    let (each, left) = ((bytes - count * id_bytes) / count, (bytes - count * id_bytes) % count);
    let body = |place: usize| vec![place as u8; each + usize::from(place < left)];
    (count <= limits.max_batch).then(|| (0..count).map(|place| put(number(place), body(place))).collect())
}

/// The longest id with the longest body, the most documents, and the most bytes in a batch.
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

/// One byte more, one document more, one document twice: refused for good, with the limit in the message.
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
