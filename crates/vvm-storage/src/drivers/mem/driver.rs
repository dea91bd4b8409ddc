//! The verbs of slots and settings: each is one look-up and one assignment under one lock.

mod documents;

use super::{MemDatabase, errors::Closed, rows::Leader};
use crate::{Opened, Partition, Provenance, SysVvmDocuments, SysVvmStorage};
use async_trait::async_trait;
use ielections::{Claim, Delete, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, Ttl, WriteError};
use std::{
    cell::LazyCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// A handle of a [`MemDatabase`].
#[derive(Debug)]
pub struct MemStorage {
    database: Arc<MemDatabase>,
    closed: AtomicBool,
}

impl MemDatabase {
    /// Returns a new handle of this database.
    pub fn open(self: &Arc<Self>) -> Arc<MemStorage> {
        Arc::new(MemStorage::of(Arc::clone(self)))
    }
}

impl MemStorage {
    fn of(database: Arc<MemDatabase>) -> Self {
        Self { database, closed: AtomicBool::new(false) }
    }

    fn open(&self) -> Result<&MemDatabase, Closed> {
        if self.closed.load(Ordering::Acquire) { Err(Closed) } else { Ok(&self.database) }
    }
}

#[async_trait]
impl SysVvmStorage for MemStorage {
    fn limits(&self) -> Limits {
        Limits {
            // No call waits.
            min_ttl: Ttl::MIN,
            // Keeps a mistake from filling the memory.
            max_key_bytes: 1 << 20,
            max_value_bytes: 1 << 20,
            // One scan keeps the lock for about 0.2 ms.
            scan_batch: 1024,
        }
    }

    fn shared_between_processes(&self) -> bool {
        false
    }

    fn opened(&self) -> Option<Opened> {
        Some(Opened::at("mem:", Provenance::Created))
    }

    async fn claim(&self, at: Partition, from: &Slot, entry: &Entry) -> Result<Claim, WriteError> {
        let database = self.open()?;
        let now = database.clock.now();
        let mut rows = database.rows();
        let stands = rows.leaders.get_mut(&at);
        let expected = match (&stands, from) {
            (None, Slot::Vacant(vacant)) => vacant.last_epoch.is_none(),
            (Some(Leader::Released(epoch)), Slot::Vacant(vacant)) => vacant.last_epoch == Some(*epoch),
            (Some(leader), Slot::Held { entry, .. }) => leader.holds(entry),
            (None, Slot::Held { .. }) | (Some(Leader::Held { .. }), Slot::Vacant(_)) => false,
        };
        if !expected {
            return Ok(Claim::Refused(rows.slot(&at, || now)));
        }
        let written = Leader::Held { entry: entry.clone(), issued_at: now };
        match stands {
            Some(leader) => *leader = written,
            None => drop(rows.leaders.insert(at, written)),
        }
        Ok(Claim::Claimed)
    }

    async fn renew(&self, at: Partition, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let database = self.open()?;
        let now = database.clock.now();
        let mut rows = database.rows();
        match rows.leaders.get_mut(&at) {
            Some(leader) if leader.holds(held) => {
                *leader = Leader::Held { entry: entry.clone(), issued_at: now };
                Ok(Swap::Swapped)
            }
            _ => Ok(Swap::Mismatch(rows.slot(&at, || now))),
        }
    }

    async fn release(
        &self,
        at: Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let database = self.open()?;
        let mut rows = database.rows();
        match rows.leaders.get_mut(&at) {
            Some(leader) if leader.is_of(incarnation, epoch) => {
                *leader = Leader::Released(epoch);
                Ok(Delete::Deleted)
            }
            _ => Ok(Delete::Mismatch(rows.slot(&at, || database.clock.now()))),
        }
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        let database = self.open()?;
        Ok(database.rows().slot(&at, || database.clock.now()))
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let database = self.open()?;
        // (I5) Read before the answer, so that no age is too large. One reading for all slots, and none if
        // all are vacant: it takes a third of the time of a scan.
        let now = LazyCell::new(|| database.clock.now());
        let rows = database.rows();
        Ok(at.iter().map(|at| rows.slot(at, || *now)).collect())
    }

    async fn settle(&self, at: Partition, value: &[u8]) -> Result<Vec<u8>, WriteError> {
        let database = self.open()?;
        let mut rows = database.rows();
        let stands = rows.settings.entry(at).or_insert_with(|| value.into());
        Ok(stands.to_vec())
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        let database = self.open()?;
        Ok(database.rows().settings.get(&at).map(|value| value.to_vec()))
    }

    fn documents(&self) -> Option<&dyn SysVvmDocuments> {
        Some(self)
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}
