//! A storage backend from scratch, as an example: one file per cell, in a folder that processes share. It is complete:
//! `tests/suites.rs` runs the suites of records, documents and elections on it. SQLite does the same job better. Read
//! it beside `docs/contributing/new-storage.md`. `folder.rs` has the lock and the files. What each failure means to an
//! election is a backend's most important table:
//!
//! | error | of a write | of a read |
//! |---|---|---|
//! | closed | `Fatal` | `Fatal` |
//! | locked by another process, failed before the rename | `NotApplied` | `Unavailable` |
//! | failed at or after the rename, the runtime ended | `Unknown` | `Unavailable` |
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "readers of the example have a tokio runtime of their own")]

mod folder;

use async_trait::async_trait;
use folder::{Folder, Locked};
use ielections::{ReadError, WriteError};
use std::{io, path::Path, sync::Arc, time::Duration};
use tokio::{
    sync::RwLock,
    task::{JoinError, spawn_blocking},
};
use vvm_storage::{
    Partition,
    cells::{Cell, CellCondition, CellLimits, CellStorage, CellWrite, Tag},
};

/// A handle on a folder of cells.
#[derive(Debug)]
pub struct FilesStorage {
    /// `None` once closed. A call holds the lock while it runs, so `close` waits for it (I9).
    folder: Arc<RwLock<Option<Folder>>>,
}

impl FilesStorage {
    /// Opens the folder `path`, and creates it if only its last part is missing. Fails if it is no folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { folder: Arc::new(RwLock::new(Some(Folder::open(path)?))) })
    }

    /// Runs `work` under the folder's lock, on a thread that may block.
    /// Dropped, `work` runs to its end or never begins: to its caller that is `Unknown`.
    async fn locked<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Locked<'_>) -> Result<T, DriverError> + Send + 'static,
    ) -> Result<T, DriverError> {
        let folder = Arc::clone(&self.folder).read_owned().await;
        let done = spawn_blocking(move || work(&folder.as_ref().ok_or(DriverError::Closed)?.lock()?));
        // An error is a panic of `work`, or the end of the runtime before or while it ran.
        done.await.unwrap_or_else(|lost| Err(DriverError::Lost(lost)))
    }
}

#[async_trait]
impl CellStorage for FilesStorage {
    fn limits(&self) -> CellLimits {
        CellLimits {
            // An attempt has a tenth of it and syncs two files: a slow disk needs 10 to 20 ms for each.
            min_ttl: Duration::from_millis(500),
            // 8 characters for 5 bytes, in a path of at most 4,096.
            max_key_bytes: 1024,
            max_cell_bytes: 4 << 20,
        }
    }

    async fn read(&self, key: &Partition) -> Result<Option<Cell>, ReadError> {
        let key = key.clone();
        let content = self.locked(move |files| files.content(&key)).await;
        let cell = |content: Vec<u8>| Cell { tag: tag(&content), value: content.into() };
        Ok(content.map_err(DriverError::into_read_error)?.map(cell))
    }

    async fn write(
        &self,
        key: &Partition,
        value: bytes::Bytes,
        expected: CellCondition,
    ) -> Result<CellWrite, WriteError> {
        let key = key.clone();
        let write = move |files: &Locked<'_>| {
            let stands =
                files.content(&key)?.map_or(CellCondition::Absent, |stands| CellCondition::Tag(tag(&stands)));
            if stands != expected {
                return Ok(CellWrite::Refused);
            }
            files.replace(&key, &value)?;
            Ok(CellWrite::Written(Some(tag(&value))))
        };
        self.locked(write).await.map_err(DriverError::into_write_error)
    }

    async fn close(&self) {
        self.folder.write().await.take();
    }
}

/// A value is its own tag, because no value of a cell repeats.
fn tag(value: &[u8]) -> Tag {
    Tag::new(value)
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    #[error("this handle is closed: open another one")]
    Closed,
    #[error("another process has kept the folder locked for a second: look for one that is stopped or hangs")]
    Busy,
    #[error("the folder can't be used: {0}")]
    NotBegun(#[source] io::Error),
    #[error("a cell may or may not have been written: {0}")]
    MaybeDone(#[source] io::Error),
    #[error("a call ended before its work: {0}")]
    Lost(#[source] JoinError),
}

impl DriverError {
    pub(crate) fn into_write_error(self) -> WriteError {
        match self {
            Self::Closed => WriteError::Fatal(self.into()),
            Self::Busy | Self::NotBegun(_) => WriteError::NotApplied(self.into()),
            // (I7) Every error that leaves the outcome open.
            Self::MaybeDone(_) | Self::Lost(_) => WriteError::Unknown(self.into()),
        }
    }

    pub(crate) fn into_read_error(self) -> ReadError {
        match self {
            Self::Closed => ReadError::Fatal(self.into()),
            Self::Busy | Self::NotBegun(_) | Self::MaybeDone(_) | Self::Lost(_) => {
                ReadError::Unavailable(self.into())
            }
        }
    }
}
