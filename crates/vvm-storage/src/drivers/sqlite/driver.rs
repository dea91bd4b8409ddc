//! The verbs of slots and settings: each is one job for the thread that owns the connection.

mod job;
mod queue;
mod writer;

use super::{
    open::{Location, OpenError, OpenOptions},
    rows::Rows,
};
use crate::{
    key::Partition,
    step::{Done, Step},
    sysvvm::{Description, Opened, SysVvmStorage},
};
use async_trait::async_trait;
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, WriteError,
};
use queue::Queue;
use std::{path::Path, time::Duration};
use vvm_clock::SystemClock;

/// A handle of a database file.
#[derive(Debug)]
pub struct SqliteStorage {
    pub(super) queue: Queue,
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
        let (queue, location) = Queue::start(move || super::open::open(&path, options)).await?;
        Ok(Self { queue, location })
    }

    /// Opens an existing database file; read-only if this user may not write it. Then writes fail with
    /// `Fatal`.
    ///
    /// # Errors
    /// See [`OpenError`]. [`OpenError::OnlyWhileInUse`] if it can neither be written nor read.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open_to_look(path: &Path, options: OpenOptions) -> Result<Self, OpenError> {
        let path = path.to_owned();
        let (queue, location) = Queue::start(move || super::open::open_to_look(&path, options)).await?;
        Ok(Self { queue, location })
    }
}

#[async_trait]
impl SysVvmStorage for SqliteStorage {
    fn limits(&self) -> Limits {
        Limits {
            // An attempt may take a tenth of it: enough for a few syncs of a slow disk (10 to 20 ms each).
            min_ttl: Duration::from_millis(500),
            // SQLite's own limit is 1 GB. This one keeps a mistake from filling the disk.
            max_key_bytes: 1 << 20,
            max_value_bytes: 1 << 20,
            // One scan keeps the thread for about 3 ms.
            scan_batch: 1024,
        }
    }

    fn shared_between_processes(&self) -> bool {
        true
    }

    fn opened(&self) -> Option<Opened> {
        Some(self.location.opened())
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<Done, WriteError> {
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
