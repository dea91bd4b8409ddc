//! A storage backend from scratch, as an example: one small text file per slot, in a folder that processes
//! share.
//!
//! It is complete and passes both suites (`tests/suites.rs`), but SQLite does the same job better. Read it
//! beside `docs/new-storage.md`, which says why each thing is as it is.
//!
//! What lives here: the verbs, each one compare and one write under the folder's lock. What doesn't: the lock
//! and the files ([`folder`]), what stands in a file ([`row`]), what an outcome means to an election
//! ([`driver_error`]).
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "readers of the example have a tokio runtime of their own")]

mod driver_error;
mod folder;
mod row;

use async_trait::async_trait;
use driver_error::{Closed, DriverError};
use folder::{Folder, Locked};
use ielections::{
    Claim, Delete, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, Vacant, WriteError,
};
use std::{io, path::Path, sync::Arc, time::Duration};
use tokio::{sync::RwLock, task::spawn_blocking};
use vvm_storage::{Partition, SysVvmStorage};

/// A handle on a folder of records.
#[derive(Debug)]
pub struct FilesStorage {
    /// `None` once closed. A call reads it for as long as it runs, so that closing waits for it (I9).
    folder: Arc<RwLock<Option<Folder>>>,
}

impl FilesStorage {
    /// Uses `path`, and creates it if only its last part is missing.
    ///
    /// # Errors
    /// When it can't be created, or is no folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { folder: Arc::new(RwLock::new(Some(Folder::open(path)?))) })
    }

    /// Runs `work` under the folder's lock, on a thread that may block.
    ///
    /// # Cancel safety
    /// Dropped, `work` is done all the same or never begun: to its caller that is `Unknown`, as the contract
    /// says.
    async fn locked<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Locked<'_>) -> Result<T, DriverError> + Send + 'static,
    ) -> Result<T, DriverError> {
        let folder = Arc::clone(&self.folder).read_owned().await;
        let done = spawn_blocking(move || work(&folder.as_ref().ok_or(Closed)?.lock()?));
        // An error is a panic of `work`, or the end of the runtime before or while it ran.
        done.await.unwrap_or_else(|lost| Err(DriverError::Lost(lost)))
    }
}

#[async_trait]
impl SysVvmStorage for FilesStorage {
    fn limits(&self) -> Limits {
        Limits {
            // An attempt may take a tenth of it, and syncs two files: a slow disk needs 10 to 20 ms for each.
            min_ttl: Duration::from_millis(500),
            // Two digits a byte, in a path of at most 4,096.
            max_key_bytes: 1024,
            max_value_bytes: 64 << 10,
            scan_batch: 256,
        }
    }

    fn shared_between_processes(&self) -> bool {
        true
    }

    async fn claim(&self, at: Partition, from: &Slot, entry: &Entry) -> Result<Claim, WriteError> {
        let (from, entry) = (from.clone(), entry.clone());
        let claim = move |rows: &Locked<'_>| {
            let stands = slot(rows, &at)?;
            if !stands.is_as_expected(&from) {
                return Ok(Claim::Refused(stands));
            }
            rows.replace(&at, &row::held(&entry))?;
            Ok(Claim::Claimed)
        };
        self.locked(claim).await.map_err(DriverError::into_write_error)
    }

    async fn renew(&self, at: Partition, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let (held, entry) = (held.clone(), entry.clone());
        let renew = move |rows: &Locked<'_>| {
            let stands = slot(rows, &at)?;
            if !stands.entry().is_some_and(|stands| stands.is_same_write(&held)) {
                return Ok(Swap::Mismatch(stands));
            }
            rows.replace(&at, &row::held(&entry))?;
            Ok(Swap::Swapped)
        };
        self.locked(renew).await.map_err(DriverError::into_write_error)
    }

    async fn release(
        &self,
        at: Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let release = move |rows: &Locked<'_>| {
            let stands = slot(rows, &at)?;
            if !stands.entry().is_some_and(|stands| stands.is_of(incarnation, epoch)) {
                return Ok(Delete::Mismatch(stands));
            }
            // The file stays: the epoch survives in it.
            rows.replace(&at, &row::released(epoch))?;
            Ok(Delete::Deleted)
        };
        self.locked(release).await.map_err(DriverError::into_write_error)
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.locked(move |rows| slot(rows, &at)).await.map_err(DriverError::into_read_error)
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let at = at.to_vec();
        let peek = move |rows: &Locked<'_>| at.iter().map(|at| slot(rows, at)).collect();
        self.locked(peek).await.map_err(DriverError::into_read_error)
    }

    async fn settle(&self, at: Partition, value: &[u8]) -> Result<Vec<u8>, WriteError> {
        let value = value.to_vec();
        let settle = move |rows: &Locked<'_>| match rows.content(&at)? {
            Some(stands) => Ok(stands),
            None => {
                rows.replace(&at, &value)?;
                Ok(value)
            }
        };
        self.locked(settle).await.map_err(DriverError::into_write_error)
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.locked(move |rows| rows.content(&at)).await.map_err(DriverError::into_read_error)
    }

    async fn close(&self) {
        self.folder.write().await.take();
    }
}

/// What stands in a slot. No age is proven: a file's time is a wall clock's, which may have jumped (I5).
fn slot(rows: &Locked<'_>, at: &Partition) -> Result<Slot, DriverError> {
    match rows.content(at)? {
        None => Ok(Slot::Vacant(Vacant { last_epoch: None })),
        Some(content) => row::parse(&content).map_err(DriverError::Damaged),
    }
}
