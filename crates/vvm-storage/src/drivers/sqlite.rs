//! Driver `sqlite`: one file, shared by processes on one machine. docs/storages/sqlite.md has options, rights, traps.
//!
//! **Writes.** One thread, `vvm-sqlite`, owns the connection. It applies all waiting writes within one `BEGIN
//! IMMEDIATE` transaction and answers them after `COMMIT`, so that they share one sync. With WAL and
//! `synchronous=FULL`, an answered write survives a power cut. One that is refused or fails does not affect the others.
//! If one ends the transaction (a full disk), the others are applied again without it.
//!
//! **Reads** see the last commit of any process. They run on the same thread and wait for its commits, but for no lock
//! of another process. A call whose caller has gone before its turn is skipped.
//!
//! **Never early.** A writer stamps each record with boot time, boot id and time namespace. An age is proven only to a
//! reader of the same boot and namespace, which has the same clock, and only if the stamp is not in the future.
//!
//! **Errors.**
//!
//! | error of SQLite | before `COMMIT` | at `COMMIT` | of a read |
//! |---|---|---|---|
//! | `BUSY`, `LOCKED`, `PROTOCOL`, for longer than a second | `NotApplied` | `NotApplied` | `Unavailable` |
//! | `FULL` | `NotApplied` | `NotApplied`: the commit frame is written last | `Unavailable` |
//! | `READONLY`, `PERM`, `AUTH` | `Fatal` | `Fatal` | `Fatal` |
//! | `CORRUPT`, `NOTADB`, a malformed row | `Fatal` | `Unknown` | `Fatal` |
//! | `ERROR` (a table is missing), `MISMATCH`, `CONSTRAINT`, `MISUSE`, `TOOBIG` | `Fatal` | `Unknown` | `Fatal` |
//! | `IOERR`, `NOMEM`, `CANTOPEN`, `INTERRUPT`, any other | `NotApplied` | `Unknown` | `Unavailable` |
//! | file, `-wal` or `-shm` deleted or replaced while open | `Replaced` | `Replaced` | `Replaced` |
//! | the thread has ended | `Unknown` | `Unknown` | `Unavailable` |
//!
//! After a failed sync at `COMMIT`, the log may hold the transaction, and a crash of all processes replay it: unknown.

mod config;
mod connection;
mod file_system;
mod obstacle;
mod queue;
mod rows;
mod statements;

use crate::{
    key::Partition,
    opening::OpenError,
    step::{Step, StepOutcome},
    sysvvm::{Description, ListedSetting, OpenedStorage, SysVvmStorage},
};
use async_trait::async_trait;
use config::Location;
pub use config::OpenOptions;
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, WriteError,
};
pub(crate) use obstacle::owners;
use queue::Queue;
use rows::Rows;
use rusqlite::ErrorCode;
use rustix::process::{Resource, getrlimit};
use std::{path::Path, time::Duration};
use vvm_clock::SystemClock;

/// A handle of a database file.
#[derive(Debug)]
pub struct SqliteStorage {
    queue: Queue,
    location: Location,
}

impl SqliteStorage {
    /// Opens the database file, and creates it on first use. Does not create its folder.
    ///
    /// # Errors
    /// See [`OpenError`]. Existing files are not changed.
    ///
    /// # Cancel safety
    /// Dropped, it opens nothing. It may leave a new file, which is complete and has no records.
    pub async fn open(path: &Path, options: OpenOptions) -> Result<Self, OpenError> {
        let path = path.to_owned();
        let (queue, location) = Queue::start(move || connection::open(&path, options)).await?;
        Ok(Self { queue, location })
    }
}

#[async_trait]
impl SysVvmStorage for SqliteStorage {
    fn limits(&self) -> Limits {
        Limits {
            // An attempt, a tenth of it, has time for a few syncs of a slow disk (10 to 20 ms each).
            min_ttl: Duration::from_millis(500),
            // SQLite's own limit is 1 GB. This one keeps a mistake from filling the disk.
            max_key_bytes: 1 << 20,
            max_value_bytes: 1 << 20,
            // One scan keeps the thread for about 3 ms.
            scan_batch: 1024,
        }
    }

    fn opened(&self) -> Option<OpenedStorage> {
        Some(self.location.opened())
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        // Read before the call waits for its turn: an age counted from here is never too large (I5).
        let issued_at = SystemClock::read();
        self.queue.write(move |rows: &Rows<'_>| rows.commit(&at, &step, issued_at)).await
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.queue.read(move |rows: &Rows<'_>| rows.slot(&at)).await
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let at = at.to_vec();
        self.queue.read(move |rows: &Rows<'_>| rows.slots(&at)).await
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.queue.read(move |rows: &Rows<'_>| rows.setting(&at)).await
    }

    async fn settings(&self) -> Result<Option<Vec<ListedSetting>>, ReadError> {
        self.queue.read(|rows: &Rows<'_>| rows.settings()).await.map(Some)
    }

    fn document_limits(&self) -> Option<DocumentLimits> {
        Some(DocumentLimits {
            max_id_bytes: 1 << 10,
            max_body_bytes: 1 << 20,
            // Renewals wait while one call keeps the thread: with these limits, milliseconds.
            max_batch: 256,
            max_batch_bytes: 2 << 20,
            max_page: 256,
        })
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let at = at.clone();
        self.queue.read(move |rows: &Rows<'_>| rows.fence_state(&at)).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        let (at, id) = (at.clone(), id.clone());
        self.queue.read(move |rows: &Rows<'_>| rows.document(&at, &id)).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        let (at, scan) = (at.clone(), scan.clone());
        self.queue.read(move |rows: &Rows<'_>| rows.scan_documents(&at, &scan)).await
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        let description = self.queue.read(|rows: &Rows<'_>| rows.describe()).await?;
        Ok(self.location.describe(description))
    }

    async fn close(&self) {
        self.queue.close().await;
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum DriverError {
    #[error(
        "another process has kept the database locked for over a second: look for one that is stopped or \
         hangs"
    )]
    Busy,
    #[error("the disk is full: make room")]
    Full,
    #[error(
        "the database can't be written: correct the permissions of its file and folder, or its mount ({0})"
    )]
    ReadOnly(String),
    #[error("the database is damaged: stop all programs that use it and restore it from a backup ({0})")]
    Damaged(String),
    #[error(
        "the database file, or its -wal or -shm beside it, was deleted or replaced while it was in use: \
         restart all programs that use it, and leave these files alone"
    )]
    Replaced,
    #[error("another program has changed the database: {0}")]
    Foreign(String),
    #[error("the database failed: {0}")]
    Failed(String),
}

impl From<rusqlite::Error> for DriverError {
    fn from(error: rusqlite::Error) -> Self {
        let text = error.to_string();
        let Some(code) = error.sqlite_error_code() else {
            // Not from SQLite but from a column with a value of the wrong type.
            return Self::Damaged(text);
        };
        match code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
                Self::Busy
            }
            ErrorCode::DiskFull => Self::Full,
            ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::AuthorizationForStatementDenied => Self::ReadOnly(text),
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Self::Damaged(text),
            ErrorCode::Unknown
            | ErrorCode::TypeMismatch
            | ErrorCode::ConstraintViolation
            | ErrorCode::ApiMisuse
            | ErrorCode::TooBig => Self::Foreign(text),
            ErrorCode::SystemIoFailure => Self::Failed(text + &file_limit()),
            _ => Self::Failed(text),
        }
    }
}

/// The end of a message about a failed write, if a limit of this process may be its cause: SQLite hides EFBIG.
fn file_limit() -> String {
    let limit = getrlimit(Resource::Fsize).current;
    limit.map_or_else(String::new, |bytes| {
        format!("; a file of this process may have {bytes} bytes: if that is the cause, let it have more (ulimit -f, LimitFSIZE=)")
    })
}

impl DriverError {
    fn before_commit(self) -> WriteError {
        match self {
            Self::Replaced => WriteError::Replaced(self.into()),
            _ if self.is_permanent() => WriteError::Fatal(self.into()),
            _ => WriteError::NotApplied(self.into()),
        }
    }

    /// Of a write whose `COMMIT` failed, or whose files were replaced before it ended.
    fn at_commit(self) -> WriteError {
        match self {
            Self::Replaced => WriteError::Replaced(self.into()),
            Self::Busy | Self::Full => WriteError::NotApplied(self.into()),
            Self::ReadOnly(_) => WriteError::Fatal(self.into()),
            // (I7) The log may contain the whole transaction.
            _ => WriteError::Unknown(self.into()),
        }
    }

    fn into_read_error(self) -> ReadError {
        match self {
            Self::Replaced => ReadError::Replaced(self.into()),
            _ if self.is_permanent() => ReadError::Fatal(self.into()),
            _ => ReadError::Unavailable(self.into()),
        }
    }

    fn is_permanent(&self) -> bool {
        match self {
            Self::ReadOnly(_) | Self::Damaged(_) | Self::Foreign(_) | Self::Replaced => true,
            Self::Busy | Self::Full | Self::Failed(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;
