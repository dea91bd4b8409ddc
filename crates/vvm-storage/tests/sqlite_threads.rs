//! No thread is left (I9). A test of its own process: it counts the threads of all.
#![cfg(all(feature = "sqlite", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use std::{fs, future::poll_fn, pin::pin, task::Poll};
use tempfile::TempDir;
use vvm_storage::{
    Partition, SysVvmStorage,
    sqlite::{OpenOptions, SqliteStorage},
};

/// Tests run on whatever file system the temporary folder is on.
const ANYWHERE: OpenOptions = OpenOptions::new().allow_overlay();

/// The kernel's mark of a task that has begun to exit (`PF_EXITING` of its `sched.h`), in the ninth field of
/// `/proc/PID/stat` (proc_pid_stat(5)).
const EXITING: u64 = 0x4;

/// How many threads of this process own a database, and do so still.
///
/// A thread that was joined may be listed a moment longer: the kernel wakes who joins before it takes the
/// thread off its list. But it bears the mark by then, and one that was not joined and still runs does
/// not.
fn owners() -> usize {
    fs::read_dir("/proc/self/task")
        .unwrap()
        .filter(|task| {
            // A thread may end between being listed and being looked at.
            fs::read_to_string(task.as_ref().unwrap().path().join("stat")).is_ok_and(|stat| {
                let (id_and_name, fields) = stat.rsplit_once(") ").unwrap();
                let flags = fields.split(' ').nth(6).unwrap().parse::<u64>().unwrap();
                id_and_name.ends_with("(vvm-sqlite") && flags & EXITING == 0
            })
        })
        .count()
}

#[tokio::test]
async fn no_thread_is_left() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("elections.db");
    let (first, second) = (
        SqliteStorage::open(&path, ANYWHERE).await.unwrap(),
        SqliteStorage::open(&path, ANYWHERE).await.unwrap(),
    );
    assert_eq!(owners(), 2);

    tokio::join!(biased; first.close(), first.close());
    assert_eq!(owners(), 1, "after close");
    assert!(first.read(Partition::from_bytes(*b"slot")).await.is_err());
    drop(first);
    drop(second);
    assert_eq!(owners(), 0, "after drop");

    SqliteStorage::open(folder.path(), ANYWHERE).await.unwrap_err();
    assert_eq!(owners(), 0, "after a refusal");

    {
        let mut opening = pin!(SqliteStorage::open(&path, ANYWHERE));
        let polled = poll_fn(|context| Poll::Ready(opening.as_mut().poll(context).is_pending()));
        assert!(polled.await);
    }
    assert_eq!(owners(), 0, "after an opening that was dropped");
}
