//! The verbs: each one call to the thread that owns the database.

mod documents;

use super::{
    errors::{Closed, DriverError},
    open::{Lane, OpenError},
};
use crate::{Description, Opened, Partition, SysVvmDocuments, SysVvmStorage};
use async_trait::async_trait;
use ielections::{Claim, Delete, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, WriteError};
use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::SystemClock;

/// sled does not tell; a test holds it against the one that is built in.
const VERSION: &str = "0.34.7";

/// A handle on a database folder. Handles of one process on one folder share its thread, which ends with the
/// last.
#[derive(Debug)]
pub struct SledStorage {
    /// `None` once closed. A call that runs keeps the lane until it ends.
    lane: Mutex<Option<Arc<Lane>>>,
    opened: Opened,
}

impl SledStorage {
    /// Opens the database folder, and creates it on first use, but not the folder that it is in.
    ///
    /// # Errors
    /// See [`OpenError`]: each says what stands in the way. Nothing that was there is changed or lost.
    ///
    /// # Cancel safety
    /// Dropped, it opens nothing; a folder that it was creating may be left, complete and empty.
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        let (lane, opened) = super::open::open(path).await?;
        Ok(Self { lane: Mutex::new(Some(lane)), opened })
    }

    fn lane(&self) -> Result<Arc<Lane>, Closed> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Closed)
    }

    fn for_write(&self) -> Result<Arc<Lane>, WriteError> {
        self.lane().map_err(|closed| WriteError::Fatal(closed.into()))
    }

    fn for_read(&self) -> Result<Arc<Lane>, ReadError> {
        self.lane().map_err(|closed| ReadError::Fatal(closed.into()))
    }
}

#[async_trait]
impl SysVvmStorage for SledStorage {
    fn limits(&self) -> Limits {
        Limits {
            // An attempt may take a tenth of it: room for a few syncs of a slow disk (10 to 20 ms each).
            min_ttl: Duration::from_millis(500),
            // Far below what sled would move into a file of its own, which nobody syncs.
            max_key_bytes: 16 << 10,
            max_value_bytes: 16 << 10,
            // Bounds how long one scan keeps the thread: about 1 ms.
            scan_batch: 1024,
        }
    }

    fn shared_between_processes(&self) -> bool {
        false
    }

    fn opened(&self) -> Option<Opened> {
        Some(self.opened.clone())
    }

    async fn claim(&self, at: Partition, from: &Slot, entry: &Entry) -> Result<Claim, WriteError> {
        // Read before the call waits: whatever is counted from here began no earlier.
        let issued_at = SystemClock::read();
        let (from, entry) = (from.clone(), entry.clone());
        self.for_write()?.write(move |rows| rows.claim(&at, &from, &entry, issued_at)).await
    }

    async fn renew(&self, at: Partition, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let issued_at = SystemClock::read();
        let (held, entry) = (held.clone(), entry.clone());
        self.for_write()?.write(move |rows| rows.renew(&at, &held, &entry, issued_at)).await
    }

    async fn release(
        &self,
        at: Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        self.for_write()?.write(move |rows| rows.release(&at, incarnation, epoch)).await
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.for_read()?.read(move |rows| rows.slot(&at).map_err(DriverError::into_read_error)).await
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let at = at.to_vec();
        let lane = self.for_read()?;
        lane.read(move |rows| {
            at.iter().map(|at| rows.slot(at)).collect::<Result<_, _>>().map_err(DriverError::into_read_error)
        })
        .await
    }

    async fn settle(&self, at: Partition, value: &[u8]) -> Result<Vec<u8>, WriteError> {
        let value = value.to_vec();
        self.for_write()?.write(move |rows| rows.settle(&at, &value)).await
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.for_read()?.read(move |rows| rows.setting(&at).map_err(DriverError::into_read_error)).await
    }

    fn documents(&self) -> Option<&dyn SysVvmDocuments> {
        Some(self)
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        self.for_read()?;
        Ok(Description::of(format!("sled {VERSION}")))
    }

    async fn close(&self) {
        let lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(lane) = lane.and_then(Arc::into_inner) {
            lane.end().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::VERSION;

    #[test]
    fn the_version_is_the_one_that_is_built_in() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
        assert!(lock.contains(&format!("name = \"sled\"\nversion = \"{VERSION}\"")), "{VERSION}");
    }
}
