//! Every thread of driver `sqlite` ends (I9). This is a binary of its own, because it counts all threads.
#![cfg(all(feature = "sqlite", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use std::{fs, future::poll_fn, pin::pin, task::Poll};
use tempfile::TempDir;
use vvm_storage::{
    Partition, SysVvmStorage,
    sqlite::{OpenOptions, SqliteStorage},
};

/// Tests run on whatever file system the temporary folder is on.
const ANYWHERE: OpenOptions = OpenOptions { allow_overlay: true, for_group: false };

/// The kernel's mark of a task that has begun to exit (`PF_EXITING` of its `sched.h`), in the ninth field of
/// `/proc/PID/stat` (proc_pid_stat(5)).
const EXITING: u64 = 0x4;

/// Returns how many threads of this process still own a database.
///
/// The kernel may list a joined thread a moment longer, because it wakes the joining thread first. By then
/// the thread has the mark; a thread that still runs does not.
fn database_threads() -> usize {
    fs::read_dir("/proc/self/task")
        .unwrap()
        .filter(|task| {
            // A thread may end between the listing and this read.
            fs::read_to_string(task.as_ref().unwrap().path().join("stat")).is_ok_and(|stat| {
                let (id_and_name, fields) = stat.rsplit_once(") ").unwrap();
                let flags = fields.split(' ').nth(6).unwrap().parse::<u64>().unwrap();
                id_and_name.ends_with("(vvm-sqlite") && flags & EXITING == 0
            })
        })
        .count()
}

#[tokio::test]
async fn every_thread_ends_with_its_handle() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("elections.db");
    let (first, second) = (
        SqliteStorage::open(&path, ANYWHERE).await.unwrap(),
        SqliteStorage::open(&path, ANYWHERE).await.unwrap(),
    );
    assert_eq!(database_threads(), 2);

    tokio::join!(biased; first.close(), first.close());
    assert_eq!(database_threads(), 1, "after close");
    assert!(first.read(Partition::from_bytes(*b"slot")).await.is_err());
    drop(first);
    drop(second);
    assert_eq!(database_threads(), 0, "after drop");

    SqliteStorage::open(folder.path(), ANYWHERE).await.unwrap_err();
    assert_eq!(database_threads(), 0, "after a refusal");

    {
        let mut opening = pin!(SqliteStorage::open(&path, ANYWHERE));
        let polled = poll_fn(|context| Poll::Ready(opening.as_mut().poll(context).is_pending()));
        assert!(polled.await);
    }
    assert_eq!(database_threads(), 0, "after a dropped opening");
}
