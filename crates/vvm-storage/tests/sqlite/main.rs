//! Driver `sqlite` beyond the contract: what opening refuses, what goes wrong in use, and several processes.
#![cfg(feature = "sqlite")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

mod faults;
mod opening;
mod processes;

use ielections::{Entry, Epoch, Slot, Vacant};
use rusqlite::Connection;
use std::{future::poll_fn, path::PathBuf, pin::Pin, task::Poll};
use tempfile::TempDir;
use vvm_storage::{
    Done, OpenError, Partition, Step, SysVvmStorage,
    sqlite::{OpenOptions, SqliteStorage},
};

/// Tests run on whatever file system the temporary folder is on.
const ANYWHERE: OpenOptions = OpenOptions { allow_overlay: true, for_group: false };

/// A database file for one test.
struct File {
    /// Removed at the end of the test.
    folder: TempDir,
    path: PathBuf,
}

impl File {
    /// Returns a path without a file.
    fn fresh() -> Self {
        let folder = TempDir::new().unwrap();
        Self { path: folder.path().join("elections.db"), folder }
    }

    /// Creates a closed file with a slot that epoch 1 led and released.
    async fn used() -> Self {
        let file = Self::fresh();
        let storage = file.open().await.unwrap();
        claim(&storage, 1).await;
        let entry = entry(1);
        storage.commit(slot(), Step::release(entry.incarnation(), entry.epoch)).await.unwrap();
        storage.close().await;
        file
    }

    async fn open(&self) -> Result<SqliteStorage, OpenError> {
        SqliteStorage::open(&self.path, ANYWHERE).await
    }

    /// Opens the file as another program would.
    fn by_hand(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }
}

fn slot() -> Partition {
    Partition::from_bytes(*b"slot")
}

fn vacant(last_epoch: Option<u64>) -> Slot {
    Slot::Vacant(Vacant { last_epoch: last_epoch.map(|epoch| Epoch::new(epoch).unwrap()) })
}

fn entry(epoch: u64) -> Entry {
    ielections::testing::entry(epoch as u8, 0, epoch)
}

/// Claims the slot, which must be vacant with the epoch before.
async fn claim(storage: &SqliteStorage, epoch: u64) {
    let from = vacant((epoch > 1).then(|| epoch - 1));
    assert_eq!(storage.commit(slot(), Step::claim(&from, &entry(epoch))).await.unwrap(), Done::Applied);
}

/// Polls once; `true` if the future is pending.
async fn is_pending(mut future: Pin<&mut (impl Future + ?Sized)>) -> bool {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
}
