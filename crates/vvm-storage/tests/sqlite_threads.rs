//! No thread is left (I9). A test of its own process: it counts the threads of all.
#![cfg(all(feature = "sqlite", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use std::{fs, future::poll_fn, pin::pin, task::Poll};
use tempfile::TempDir;
use vvm_storage::{Partition, SysVvmStorage, sqlite::SqliteStorage};

/// How many threads of this process own a database.
fn owners() -> usize {
    fs::read_dir("/proc/self/task")
        .unwrap()
        .filter(|task| {
            // A thread may end between being listed and being looked at.
            fs::read_to_string(task.as_ref().unwrap().path().join("comm"))
                .is_ok_and(|name| name == "vvm-sqlite\n")
        })
        .count()
}

#[tokio::test]
async fn no_thread_is_left() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("elections.db");
    let (first, second) =
        (SqliteStorage::open(&path).await.unwrap(), SqliteStorage::open(&path).await.unwrap());
    assert_eq!(owners(), 2);

    tokio::join!(biased; first.close(), first.close());
    assert_eq!(owners(), 1, "after close");
    assert!(first.read(&Partition::from_bytes(*b"slot")).await.is_err());
    drop(first);
    drop(second);
    assert_eq!(owners(), 0, "after drop");

    SqliteStorage::open(folder.path()).await.unwrap_err();
    assert_eq!(owners(), 0, "after a refusal");

    {
        let mut opening = pin!(SqliteStorage::open(&path));
        let polled = poll_fn(|context| Poll::Ready(opening.as_mut().poll(context).is_pending()));
        assert!(polled.await);
    }
    assert_eq!(owners(), 0, "after an opening that was dropped");
}
