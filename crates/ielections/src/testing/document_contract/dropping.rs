//! A batch whose future was dropped is applied as a whole or not at all, now or later.

use super::{
    StorageUnderTest,
    calls::{self, documents, sent},
    stage::{Stage, delete, id, put},
};
use crate::BatchOutcome;
use std::{future::poll_fn, task::Poll};

/// Drops batches at every stage. An empty batch after the same one then shows the outcome: it is applied
/// instead, or refused. All documents of the dropped batch agree with that.
pub async fn a_dropped_batch_is_applied_whole_or_not_at_all(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    let (here, there, key) = (&*stage.scene.here, &*stage.scene.there, &stage.scene.key);
    let names = ["a", "b", "c", "d"];
    stage.written(0, &[put("gone 0", "")]).await;
    let (mut last, mut body) = (1, String::new());
    for round in 0..100_u64 {
        let attempt = round.to_string();
        let (gone, new) = (format!("gone {round}"), format!("gone {}", round + 1));
        let mut batch = names.map(|name| put(name, &attempt)).to_vec();
        batch.extend([delete(&gone), put(&new, "")]);
        let fence = stage.fence(last);
        let mut write = documents(here).write_documents(key, &fence, &batch);
        for _ in 0..round % 4 {
            if poll_fn(|context| Poll::Ready(write.as_mut().poll(context))).await.is_ready() {
                break;
            }
        }
        drop(write);

        let mut placeholder = sent(there, key, &fence, &[]).await;
        while placeholder.is_none() && calls::state(there, key).await.last == fence.after {
            placeholder = sent(there, key, &fence, &[]).await;
        }
        last += 1;
        assert_eq!(stage.last().await, last);
        let shown = stage.shown().await;
        let stands = |name: &str| shown.iter().find(|document| document.id == id(name));
        let landed = stands(&new).is_some();
        assert!(
            landed || placeholder != Some(BatchOutcome::Refused),
            "round {round}: nothing took its place"
        );
        assert!(!landed || placeholder != Some(BatchOutcome::Written), "round {round}: both landed");
        if landed {
            body = attempt;
        }
        let says = |name: &str| stands(name).map_or(&b""[..], |document| &document.body);
        assert!(names.iter().all(|name| says(name) == body.as_bytes()), "round {round}, {landed}: {shown:?}");
        assert_eq!(stands(&gone).is_some(), !landed, "round {round}: {shown:?}");
        if !landed {
            stage.written(last, &[delete(&gone), put(&new, "")]).await;
            last += 1;
        }
    }
}
