mod faults;
mod opening;

use crate::processes::{STORAGE, run_alone, threads};
use ielections::{Entry, Epoch, ReadError, Slot, Vacant};
use rusqlite::Connection;
use std::{
    future::poll_fn,
    path::PathBuf,
    pin::{Pin, pin},
    task::Poll,
};
use tempfile::TempDir;
use vvm_storage::{
    OpenError, Partition, Step, StepOutcome, SysVvmStorage,
    sqlite::{OpenOptions, SqliteStorage},
};

/// Tests run on whatever file system the temporary folder is on.
const ANYWHERE: OpenOptions = OpenOptions { allow_overlay: true, for_group: false };

struct File {
    folder: TempDir,
    path: PathBuf,
}

impl File {
    fn fresh() -> Self {
        let folder = TempDir::new().unwrap();
        Self { path: folder.path().join("elections.db"), folder }
    }

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

async fn claim(storage: &SqliteStorage, epoch: u64) {
    let from = vacant((epoch > 1).then(|| epoch - 1));
    assert_eq!(
        storage.commit(slot(), Step::claim(&from, &entry(epoch))).await.unwrap(),
        StepOutcome::Applied
    );
}

#[tokio::test]
async fn description_has_library_journal_syncs_and_file_system() {
    let file = File::fresh();
    let storage = file.open().await.unwrap();
    let described = storage.describe().await.unwrap();
    assert_eq!(described.software, Some(format!("SQLite {}", rusqlite::version())));
    assert_eq!(described.setting("journal mode"), Some("wal"));
    assert_eq!(described.setting("synchronous"), Some("full"));
    let file_system = described.setting("file system").unwrap();
    // A file in memory, on overlayfs or below /tmp is a concern. Tests may run there, or elsewhere on a disk.
    let is_durable = !["tmpfs", "ramfs", "overlayfs"].contains(&file_system);
    let is_shared = !["/tmp", "/var/tmp"].iter().any(|temporary| file.path.starts_with(temporary));
    assert_eq!(described.concerns.is_empty(), is_durable && is_shared, "{described:?}");
    storage.close().await;
    assert!(matches!(storage.describe().await, Err(ReadError::Fatal(_))));
}

async fn is_pending(mut future: Pin<&mut (impl Future + ?Sized)>) -> bool {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
}

/// Every thread of the driver ends (I9).
#[tokio::test]
async fn every_thread_ends_with_its_handle() {
    let file = File::fresh();
    if std::env::var_os(STORAGE).is_none() {
        // Other tests have threads, too.
        return run_alone("sqlite::every_thread_ends_with_its_handle", "");
    }
    let threads = || threads("vvm-sqlite");
    let (first, second) = (file.open().await.unwrap(), file.open().await.unwrap());
    assert_eq!(threads(), 2);

    tokio::join!(biased; first.close(), first.close());
    assert_eq!(threads(), 1, "after close");
    assert!(first.read(slot()).await.is_err());
    drop(first);
    drop(second);
    assert_eq!(threads(), 0, "after drop");

    SqliteStorage::open(file.folder.path(), ANYWHERE).await.unwrap_err();
    assert_eq!(threads(), 0, "after a refusal");

    // A quick thread has opened the file before the first poll looks. Then the drop is that of a handle.
    loop {
        let was_pending = is_pending(pin!(file.open())).await;
        assert_eq!(threads(), 0, "after a dropped opening");
        if was_pending {
            break;
        }
    }
}
