//! The verbs of slots and settings: each is one call to the thread that owns the database.

mod documents;

use super::open::{OpenError, Queue};
use crate::{Description, Opened, Partition, SysVvmDocuments, SysVvmStorage, drivers::closed::Closed};
use async_trait::async_trait;
use ielections::{Claim, Delete, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, WriteError};
use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
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
        let (queue, opened) = super::open::open(path).await?;
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

    async fn claim(&self, at: Partition, from: &Slot, entry: &Entry) -> Result<Claim, WriteError> {
        // Read before the call waits for its turn: an age counted from here is never too large (I5).
        let issued_at = SystemClock::read();
        let (from, entry) = (from.clone(), entry.clone());
        self.queue()?.write(move |rows| rows.claim(&at, &from, &entry, issued_at)).await
    }

    async fn renew(&self, at: Partition, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let issued_at = SystemClock::read();
        let (held, entry) = (held.clone(), entry.clone());
        self.queue()?.write(move |rows| rows.renew(&at, &held, &entry, issued_at)).await
    }

    async fn release(
        &self,
        at: Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        self.queue()?.write(move |rows| rows.release(&at, incarnation, epoch)).await
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.queue()?.read(move |rows| rows.slot(&at)).await
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let at = at.to_vec();
        self.queue()?.read(move |rows| at.iter().map(|at| rows.slot(at)).collect()).await
    }

    async fn settle(&self, at: Partition, value: &[u8]) -> Result<Vec<u8>, WriteError> {
        let value = value.to_vec();
        self.queue()?.write(move |rows| rows.settle(&at, &value)).await
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.queue()?.read(move |rows| rows.setting(&at)).await
    }

    fn documents(&self) -> Option<&dyn SysVvmDocuments> {
        Some(self)
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

#[cfg(test)]
mod tests {
    use super::VERSION;

    #[test]
    fn version_is_that_of_the_lock_file() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
        assert!(lock.contains(&format!("name = \"sled\"\nversion = \"{VERSION}\"")), "{VERSION}");
    }
}
