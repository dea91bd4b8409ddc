//! Closing: every later call of the handle fails for good. Other handles are not affected.

use super::{
    StorageUnderTest,
    calls::documents,
    stage::{Stage, document, id, put},
};
use crate::{ReadError, Scan, WriteError};

/// Every verb of a closed handle fails with `Fatal` and changes nothing. The other handle still works.
pub async fn a_closed_handle_refuses_documents_for_good(storage: &impl StorageUnderTest) {
    let stage = Stage::led(storage).await;
    stage.written(0, &[put("a", "1")]).await;
    let (handle, key) = (storage.open().await, &stage.scene.key);
    handle.close().await;
    let closed = documents(&*handle);
    for batch in [&[put("a", "2")][..], &[]] {
        let write = closed.write_documents(key, &stage.fence(1), batch).await;
        assert!(matches!(write, Err(WriteError::Fatal(_))), "write: {write:?}");
    }
    let state = closed.fence_state(key).await;
    assert!(matches!(state, Err(ReadError::Fatal(_))), "state: {state:?}");
    let read = closed.document(key, &id("a")).await;
    assert!(matches!(read, Err(ReadError::Fatal(_))), "read: {read:?}");
    let scan = closed.scan_documents(key, &Scan { limit: 1, ..Scan::default() }).await;
    assert!(matches!(scan, Err(ReadError::Fatal(_))), "scan: {scan:?}");
    assert_eq!((stage.last().await, stage.shown().await), (1, vec![document("a", 1, "1")]));
    stage.written(1, &[put("a", "2")]).await;
}
