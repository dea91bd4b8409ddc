//! Driver `sled`: a folder that one process uses, for several VVMs in one process, or for one that must keep
//! its epoch over a restart. Processes on one machine share a file of [`sqlite`](crate::url) instead.
//!
//! **Calls.** One thread, `vvm-sled`, owns the database; all handles of this process on one folder share it.
//! It carries out all waiting calls, writes and syncs the log, and only then answers them, reads included. So
//! every answer, of a read too, survives a power cut. sled on Linux does not flush the disk's cache; this
//! driver does. A call whose caller has gone before its turn is skipped.
//!
//! **Documents** of all partitions are in one tree, because sled writes a batch to one tree as a whole. A
//! document has at most 4 KiB: sled moves larger values into files of their own, which it does not sync.
//!
//! **Never early.** Only a write ends a record. The age of a record is proven, on the clock of the process
//! that wrote it, while that process keeps a handle open. Afterwards an observer waits one TTL of its own.
//!
//! **Errors.**
//!
//! | error of sled | of a write | of a read |
//! |---|---|---|
//! | `Io` before anything was changed | `NotApplied` | `Unavailable` |
//! | `Corruption`, a malformed row, before anything was changed | `Fatal` | `Fatal` |
//! | `CollectionNotFound`, `Unsupported`, `ReportableBug`, before anything was changed | `Fatal` | `Fatal` |
//! | any while it writes | `Unknown` | – |
//! | any while it syncs | `Unknown` | `Unavailable`, `Fatal` as above |
//! | the thread has ended | `Unknown` | `Unavailable` |
//!
//! **Limits.** A second process is refused, because sled locks its folder. The folder must be on a local
//! disk. The library keeps an idle thread, `sled-io`, until the process ends.

mod open;
mod rows;

pub use open::OpenError;

use crate::{
    drivers::{
        database_thread::{DatabaseThread, StartError},
        errors::{Closed, Unanswered},
    },
    key::Partition,
    step::{Done, Step},
    sysvvm::{Description, Opened, SysVvmStorage},
};
use async_trait::async_trait;
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, WriteError,
};
use open::Database;
use rows::DriverError;
use rows::Rows;
use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::Duration,
};
use vvm_clock::SystemClock;

/// sled's version, which the library does not offer. A test compares it with `Cargo.lock`.
const VERSION: &str = "0.34.7";

/// A handle of a database folder. Handles of one process on one folder share a thread, which ends with the
/// last of them.
#[derive(Debug)]
pub struct SledStorage {
    /// `None` once closed. A running call keeps the queue until it ends.
    queue: Mutex<Option<Arc<Queue>>>,
    opened: Opened,
}

impl SledStorage {
    /// Opens the database folder, and creates it on first use. Does not create the folder above.
    ///
    /// # Errors
    /// See [`OpenError`]. Existing files are not changed.
    ///
    /// # Cancel safety
    /// Dropped, it opens nothing. It may leave a new folder, which is complete and has no records.
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        let (queue, opened) = open::open(path).await?;
        Ok(Self { queue: Mutex::new(Some(queue)), opened })
    }

    fn queue(&self) -> Result<Arc<Queue>, Closed> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Closed)
    }
}

#[async_trait]
impl SysVvmStorage for SledStorage {
    fn limits(&self) -> Limits {
        Limits {
            // An attempt may take a tenth of it: enough for a few syncs of a slow disk (10 to 20 ms each).
            min_ttl: Duration::from_millis(500),
            // Far below the size that sled moves into a file of its own, which it does not sync.
            max_key_bytes: 16 << 10,
            max_value_bytes: 16 << 10,
            // One scan keeps the thread for about 1 ms.
            scan_batch: 1024,
        }
    }

    fn shared_between_processes(&self) -> bool {
        false
    }

    fn opened(&self) -> Option<Opened> {
        Some(self.opened.clone())
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<Done, WriteError> {
        // Read before the call waits for its turn: an age counted from here is never too large (I5).
        let issued_at = SystemClock::read();
        self.queue()?.write(move |rows| rows.commit(&at, &step, issued_at)).await
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.queue()?.read(move |rows| rows.slot(&at)).await
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let at = at.to_vec();
        self.queue()?.read(move |rows| at.iter().map(|at| rows.slot(at)).collect()).await
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.queue()?.read(move |rows| rows.setting(&at)).await
    }

    async fn settings(&self) -> Result<Option<Vec<Partition>>, ReadError> {
        self.queue()?.read(|rows| rows.settings()).await.map(Some)
    }

    fn document_limits(&self) -> Option<DocumentLimits> {
        Some(DocumentLimits {
            // 17 of the largest fit into a page that sled does not move into a file of its own, which it
            // does not sync.
            max_id_bytes: 1 << 8,
            max_body_bytes: 4 << 10,
            // Renewals wait while one call keeps the thread: milliseconds, or tens of them if the documents
            // do not fit into sled's cache.
            max_batch: 256,
            max_batch_bytes: 1 << 20,
            max_page: 256,
        })
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let at = at.clone();
        self.queue()?.read(move |rows| rows.fence_state(&at)).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        let (at, id) = (at.clone(), id.clone());
        self.queue()?.read(move |rows| rows.document(&at, &id)).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        let (at, scan) = (at.clone(), scan.clone());
        self.queue()?.read(move |rows| rows.scan_documents(&at, &scan)).await
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        self.queue()?;
        Ok(Description::of(format!("sled {VERSION}")))
    }

    async fn close(&self) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(queue) = queue.and_then(Arc::into_inner) {
            queue.close().await;
        }
    }
}

/// Carries a call out, and returns how to answer it once the log is on the disk.
type Call = Box<dyn FnOnce(&mut Rows) -> Answer + Send>;
type Answer = Box<dyn FnOnce(Result<(), DriverError>)>;

/// The thread that owns the database, and the queue of its calls.
#[derive(Debug)]
struct Queue(DatabaseThread<Call>);

impl Queue {
    /// Starts the thread, which opens and closes the database.
    async fn start(
        open: impl FnOnce() -> Result<Database, OpenError> + Send + 'static,
    ) -> Result<Self, OpenError> {
        match DatabaseThread::start("vvm-sled", |_| open().map(|database| (database, ())), serve).await {
            Ok((thread, ())) => Ok(Self(thread)),
            Err(StartError::Thread(cause)) => Err(OpenError::Thread(cause)),
            Err(StartError::Ended) => Err(OpenError::ThreadEnded),
            Err(StartError::Open(error)) => Err(error),
        }
    }

    /// Carries a write out. Fails with `Fatal` if the handle is closed.
    ///
    /// # Cancel safety
    /// Dropped before its turn, it is skipped; after that the write is applied, and the answer lost.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Rows) -> Result<T, WriteError> + Send + 'static,
    ) -> Result<T, WriteError> {
        let answer = self.call(work, DriverError::while_writing).await?;
        answer.unwrap_or_else(|| Err(WriteError::Unknown(Unanswered.into())))
    }

    /// Carries a read out. Fails with `Fatal` if the handle is closed.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Rows) -> Result<T, DriverError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let work = |rows: &mut Rows| work(rows).map_err(DriverError::into_read_error);
        let answer = self.call(work, DriverError::into_read_error).await?;
        answer.unwrap_or_else(|| Err(ReadError::Unavailable(Unanswered.into())))
    }

    /// `None` if the thread ended before it answered.
    async fn call<T: Send + 'static, E: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Rows) -> Result<T, E> + Send + 'static,
        unsynced: impl FnOnce(DriverError) -> E + Send + 'static,
    ) -> Result<Option<Result<T, E>>, Closed> {
        let call = |answer: tokio::sync::oneshot::Sender<_>, room| -> Call {
            Box::new(move |rows| {
                let outcome = (!answer.is_closed()).then(|| work(rows));
                drop(room);
                Box::new(move |synced| {
                    if let Some(outcome) = outcome {
                        // The caller may be gone.
                        let _gone =
                            answer.send(outcome.and_then(|done| synced.map(|()| done).map_err(unsynced)));
                    }
                })
            })
        };
        self.0.call(call).await
    }

    /// Returns when all calls are answered and the thread is joined.
    ///
    /// # Cancel safety
    /// May be dropped: that joins the thread at once.
    async fn close(self) {
        self.0.close().await;
    }
}

/// Serves until the queue is closed and empty. All calls that wait share one sync.
fn serve(mut database: Database, calls: mpsc::Receiver<Call>) {
    while let Ok(first) = calls.recv() {
        let mut answers = vec![first(&mut database.rows)];
        while let Ok(next) = calls.try_recv() {
            answers.push(next(&mut database.rows));
        }
        let synced = database.sync();
        answers.into_iter().for_each(|answer| answer(synced.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::VERSION;

    #[test]
    fn version_is_that_of_the_lock_file() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
        assert!(lock.contains(&format!("name = \"sled\"\nversion = \"{VERSION}\"")), "{VERSION}");
    }
}
