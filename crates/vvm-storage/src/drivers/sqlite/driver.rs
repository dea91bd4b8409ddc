//! The verbs: each one job for the thread that owns the connection.

mod documents;
mod job;
mod lane;
mod writer;

use super::{
    open::{Location, OpenError, OpenOptions},
    rows::Rows,
};
use crate::{Description, Opened, Partition, SysVvmDocuments, SysVvmStorage};
use async_trait::async_trait;
use ielections::{Claim, Delete, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, WriteError};
use lane::Lane;
use std::{path::Path, time::Duration};
use vvm_clock::{Instant, SystemClock};

/// A handle on a database file.
#[derive(Debug)]
pub struct SqliteStorage {
    pub(super) lane: Lane,
    location: Location,
}

impl SqliteStorage {
    /// Opens the database file, and creates it on first use, but not its folder.
    ///
    /// # Errors
    /// See [`OpenError`]: each says what stands in the way. Nothing that was there is changed or lost.
    ///
    /// # Cancel safety
    /// Dropped, it opens nothing; a file that it was creating may be left, complete and empty.
    pub async fn open(path: &Path, options: OpenOptions) -> Result<Self, OpenError> {
        let path = path.to_owned();
        let (lane, location) = Lane::start(move || super::open::open(&path, options)).await?;
        Ok(Self { lane, location })
    }

    /// Opens a database file that is there; to read alone, if this user may not write it: then writes fail
    /// with `Fatal`.
    ///
    /// # Errors
    /// See [`OpenError`]. [`OpenError::OnlyWhileInUse`] if it may not be written, and can't be read either.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open_to_look(path: &Path, options: OpenOptions) -> Result<Self, OpenError> {
        let path = path.to_owned();
        let (lane, location) = Lane::start(move || super::open::open_to_look(&path, options)).await?;
        Ok(Self { lane, location })
    }
}

/// Read when a call is made and before it waits: everything that is counted from here began no earlier.
fn issued_at() -> Instant {
    SystemClock::read()
}

#[async_trait]
impl SysVvmStorage for SqliteStorage {
    fn limits(&self) -> Limits {
        Limits {
            // An attempt may take a tenth of it: room for a few syncs of a slow disk (10 to 20 ms each).
            min_ttl: Duration::from_millis(500),
            // SQLite takes 1 GB; this keeps a mistake from filling the disk.
            max_key_bytes: 1 << 20,
            max_value_bytes: 1 << 20,
            // Bounds how long one scan keeps the thread: about 3 ms.
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
        self.lane.write(move |rows: &Rows<'_>| rows.claim(&at, &from, &entry, issued_at)).await
    }

    async fn renew(&self, at: Partition, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let (held, entry, issued_at) = (held.clone(), entry.clone(), issued_at());
        self.lane.write(move |rows: &Rows<'_>| rows.renew(&at, &held, &entry, issued_at)).await
    }

    async fn release(
        &self,
        at: Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        self.lane.write(move |rows: &Rows<'_>| rows.release(&at, incarnation, epoch)).await
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.lane.read(move |rows: &Rows<'_>| rows.slot(&at)).await
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let at = at.to_vec();
        self.lane.read(move |rows: &Rows<'_>| rows.slots(&at)).await
    }

    async fn settle(&self, at: Partition, value: &[u8]) -> Result<Vec<u8>, WriteError> {
        let value = value.to_vec();
        self.lane.write(move |rows: &Rows<'_>| rows.settle(&at, &value)).await
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.lane.read(move |rows: &Rows<'_>| rows.setting(&at)).await
    }

    fn documents(&self) -> Option<&dyn SysVvmDocuments> {
        Some(self)
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        let description = self.lane.read(|rows: &Rows<'_>| rows.describe()).await?;
        Ok(self.location.describe(description))
    }

    async fn close(&self) {
        self.lane.close().await;
    }
}
