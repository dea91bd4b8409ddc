//! The verbs of slots and settings: each is one job for the thread that owns the connection.

mod documents;
mod job;
mod queue;
mod writer;

use super::{
    open::{Location, OpenError, OpenOptions},
    rows::Rows,
};
use crate::{Description, Opened, Partition, SysVvmDocuments, SysVvmStorage};
use async_trait::async_trait;
use ielections::{Claim, Delete, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, WriteError};
use queue::Queue;
use std::{path::Path, time::Duration};
use vvm_clock::{Instant, SystemClock};

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

/// Returns the time of a call, before it waits for its turn: an age counted from here is never too large
/// (I5).
fn issued_at() -> Instant {
    SystemClock::read()
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

    async fn claim(&self, at: Partition, from: &Slot, entry: &Entry) -> Result<Claim, WriteError> {
        let (from, entry, issued_at) = (from.clone(), entry.clone(), issued_at());
        self.queue.write(move |rows: &Rows<'_>| rows.claim(&at, &from, &entry, issued_at)).await
    }

    async fn renew(&self, at: Partition, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let (held, entry, issued_at) = (held.clone(), entry.clone(), issued_at());
        self.queue.write(move |rows: &Rows<'_>| rows.renew(&at, &held, &entry, issued_at)).await
    }

    async fn release(
        &self,
        at: Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        self.queue.write(move |rows: &Rows<'_>| rows.release(&at, incarnation, epoch)).await
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.queue.read(move |rows: &Rows<'_>| rows.slot(&at)).await
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let at = at.to_vec();
        self.queue.read(move |rows: &Rows<'_>| rows.slots(&at)).await
    }

    async fn settle(&self, at: Partition, value: &[u8]) -> Result<Vec<u8>, WriteError> {
        let value = value.to_vec();
        self.queue.write(move |rows: &Rows<'_>| rows.settle(&at, &value)).await
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.queue.read(move |rows: &Rows<'_>| rows.setting(&at)).await
    }

    fn documents(&self) -> Option<&dyn SysVvmDocuments> {
        Some(self)
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        let description = self.queue.read(|rows: &Rows<'_>| rows.describe()).await?;
        Ok(self.location.describe(description))
    }

    async fn close(&self) {
        self.queue.close().await;
    }
}
