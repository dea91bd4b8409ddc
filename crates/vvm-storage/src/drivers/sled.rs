//! Driver `sled`: a folder that one process uses. docs/storages/sled.md says for what.
//!
//! **Calls.** A cell is one value, replaced by sled's `compare_and_swap`; its tag is the value itself. One thread,
//! `vvm-sled`, owns the database, and all handles of this process on one folder share it. It carries out all waiting
//! calls, flushes sled's log and syncs its file, and only then answers them, reads included. sled itself, on Linux,
//! syncs neither the disk's cache nor the file's length. A call whose caller has gone before its turn is skipped.
//!
//! **Errors.**
//!
//! | error of sled | of a write | of a read |
//! |---|---|---|
//! | any while it swaps, flushes or syncs | `Unknown`, and the folder is closed | `Unavailable`, of those answered with it |
//! | `Io` | – | `Unavailable` |
//! | `Corruption`, `CollectionNotFound`, `Unsupported`, `ReportableBug` | – | `Fatal` |
//! | a call after the folder was closed | `Fatal` | `Fatal` |
//!
//! After a failed flush sled shows what may not be on the disk. So the thread ends, which closes the folder: it must be
//! opened again. The library keeps idle threads, `sled-io`, until the process ends (I9 names them).

mod config;
mod connection;

use crate::{
    cells::{Cell, CellCondition, CellLimits, CellStorage, CellWrite},
    drivers::errors::{HandleClosed, ThreadEnded},
    key::Partition,
    opening::OpenError,
    sysvvm::{Description, OpenedStorage},
};
use async_trait::async_trait;
use bytes::Bytes;
use connection::{Job, SharedDatabase};
use ielections::{ReadError, WriteError};
use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;

/// Stored in the folder: another segment size can't open it. This one is the largest that sled takes.
const SEGMENT_BYTES: usize = 16 << 20;

const MAX_CELL_BYTES: usize = 96 << 10;

const MAX_KEY_BYTES: usize = 2 << 10;

/// sled splits a leaf with more than 16 values and an index with more than 256 keys, after it has written them. What is
/// larger than a quarter of a segment goes into a file that is never synced. Half of that is for what surrounds them.
const _: () = assert!(2 * 17 * (MAX_CELL_BYTES + MAX_KEY_BYTES) < SEGMENT_BYTES / 4);

const _: () = assert!(2 * 257 * MAX_KEY_BYTES < SEGMENT_BYTES / 4);

/// A handle of a database folder. [`Cells`](crate::cells::Cells) make a storage of it. Handles of one process on one
/// folder share a thread, which ends with the last of them.
#[derive(Debug)]
pub struct SledCells {
    shared: Mutex<Option<Arc<SharedDatabase>>>,
    opened: OpenedStorage,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the folder of the database is closed, because a write to it failed: see the log, and start the program again"
)]
struct Failed;

impl SledCells {
    /// Opens the database folder, and creates it on first use. Does not create the folder above.
    ///
    /// # Errors
    /// See [`OpenError`]. Existing files are not changed.
    ///
    /// # Cancel safety
    /// Dropped, it opens nothing. It may leave a new folder, which is complete and has no records.
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        let (shared, opened) = connection::open(path).await?;
        Ok(Self { shared: Mutex::new(Some(shared)), opened })
    }

    /// Queues a job, and waits for its answer; `None` if the thread ended before. Fails with `Fatal`, and the job was
    /// not queued, if the handle or the folder is closed. Dropped, the job is skipped if the thread has not begun with
    /// it; else it is done, and its answer lost.
    async fn call<T, E: From<HandleClosed>>(
        &self,
        job: impl FnOnce(oneshot::Sender<T>) -> Job,
        failed: impl FnOnce(Failed) -> E,
    ) -> Result<Option<T>, E> {
        let (answer, answered) = oneshot::channel();
        // No call keeps the folder open while it waits, so that a close ends the thread.
        let jobs = self.lock().as_ref().map(|shared| shared.jobs.clone()).ok_or(HandleClosed)?;
        jobs.send(job(answer)).await.map_err(|_| failed(Failed))?;
        drop(jobs);
        Ok(answered.await.ok())
    }

    /// One assignment, so a panic elsewhere leaves it whole.
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<SharedDatabase>>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl CellStorage for SledCells {
    fn limits(&self) -> CellLimits {
        CellLimits {
            // An attempt may take a tenth of it: enough for a few syncs of a slow disk (10 to 20 ms each).
            min_ttl: Duration::from_millis(500),
            max_key_bytes: MAX_KEY_BYTES,
            max_cell_bytes: MAX_CELL_BYTES,
        }
    }

    async fn read(&self, key: &Partition) -> Result<Option<Cell>, ReadError> {
        let job = |answer| Job::Read { key: key.clone(), answer };
        let read = self.call(job, |failed| ReadError::Fatal(failed.into())).await?;
        read.unwrap_or_else(|| Err(ReadError::Unavailable(ThreadEnded.into())))
    }

    async fn write(
        &self,
        key: &Partition,
        value: Bytes,
        expected: CellCondition,
    ) -> Result<CellWrite, WriteError> {
        let job = |answer| Job::Write { key: key.clone(), value, expected, answer };
        let written = self.call(job, |failed| WriteError::Fatal(failed.into())).await?;
        written.ok_or_else(|| WriteError::Unknown(ThreadEnded.into()))
    }

    fn opened(&self) -> Option<OpenedStorage> {
        Some(self.opened.clone())
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        self.lock().as_ref().ok_or(HandleClosed)?;
        Ok(Description::new("sled 0.34"))
    }

    /// May be dropped, and then joins the thread if this is the last handle.
    async fn close(&self) {
        let Some(shared) = self.lock().take() else { return };
        let (answer, answered) = oneshot::channel();
        if shared.jobs.send(Job::Wait { answer }).await.is_ok() {
            // Without an answer the thread has ended.
            let _all_are_answered = answered.await;
        }
        if let Some(SharedDatabase { jobs, thread }) = Arc::into_inner(shared) {
            drop(jobs);
            thread.ended().await;
        }
    }
}
