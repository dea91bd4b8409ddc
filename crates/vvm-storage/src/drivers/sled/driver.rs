//! The verbs of slots and settings: each is one call to the thread that owns the database.

use super::open::{OpenError, Queue};
use crate::{
    drivers::closed::Closed,
    key::Partition,
    step::{Done, Step},
    sysvvm::{Description, Opened, SysVvmStorage},
};
use async_trait::async_trait;
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, WriteError,
};
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

#[cfg(test)]
mod tests {
    use super::VERSION;

    #[test]
    fn version_is_that_of_the_lock_file() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
        assert!(lock.contains(&format!("name = \"sled\"\nversion = \"{VERSION}\"")), "{VERSION}");
    }
}
