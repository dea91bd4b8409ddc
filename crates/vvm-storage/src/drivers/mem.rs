//! Driver `mem`: in the memory of this process, for tests and single-process use. A [`MemDatabase`] is the data, which
//! is lost with its last [`MemStorage`] handle. Ages are always proven, because writer and reader share the database's
//! clock: a record can be taken over as soon as its TTL has passed, and never earlier (I5).

use crate::{
    document_set::DocumentSet,
    drivers::errors::HandleClosed,
    key::Partition,
    step::{Decision, PartitionState, Step, StepOutcome, decide},
    sysvvm::{ListedSetting, MOST_LISTED, OpenedStorage, Provenance, SysVvmStorage},
};
use async_trait::async_trait;
use foldhash::HashMap;
use ielections::{
    Document, DocumentId, DocumentLimits, DocumentVersion, Entry, Epoch, FenceState, Limits, Page, ReadError,
    Scan, Slot, Ttl, Vacant, WriteError,
};
use std::{
    cell::LazyCell,
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use vvm_clock::{Clock, Instant};

/// Slots, settings and documents in memory.
#[derive(Debug)]
pub struct MemDatabase {
    /// Ages count on this clock. It belongs to the database, because its users may have clocks of their own.
    clock: Arc<dyn Clock>,
    rows: Mutex<Rows>,
}

impl MemDatabase {
    /// Returns an empty database that counts the ages of its records on `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, rows: Mutex::default() })
    }

    /// Returns a new handle of this database.
    pub fn open(self: &Arc<Self>) -> Arc<MemStorage> {
        Arc::new(MemStorage { database: Arc::clone(self), closed: AtomicBool::new(false) })
    }

    /// Poison carries no information: every change is one assignment, or a batch in which nothing panics.
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All rows: hash maps, with few bytes per record (I11).
#[derive(Debug, Default)]
struct Rows {
    leaders: HashMap<Partition, Leader>,
    settings: HashMap<Partition, Box<[u8]>>,
    /// A partition has a set of documents from its first batch on, for good.
    documents: HashMap<Partition, DocumentSet>,
}

/// A slot that was led at least once.
#[derive(Debug)]
enum Leader {
    /// Released; the epoch stays (I2).
    Released(Epoch),
    /// Held by this record since its write was issued.
    Held { entry: Entry, issued_at: Instant },
}

impl Rows {
    fn slot(&self, at: &Partition, now: impl FnOnce() -> Instant) -> Slot {
        match self.leaders.get(at) {
            None => Slot::Vacant(Vacant { last_epoch: None }),
            Some(Leader::Released(epoch)) => Slot::Vacant(Vacant { last_epoch: Some(*epoch) }),
            // (I5) Both readings come from the database's clock, and `issued_at` was read after the call was issued.
            Some(Leader::Held { entry, issued_at }) => {
                Slot::Held { entry: entry.clone(), proven_age: Some(now().since(*issued_at)) }
            }
        }
    }

    fn last_batch(&self, at: &Partition) -> DocumentVersion {
        self.documents.get(at).map_or(DocumentVersion::NONE, DocumentSet::last)
    }

    fn put(&mut self, at: Partition, leader: Leader) {
        match self.leaders.get_mut(&at) {
            Some(stands) => *stands = leader,
            None => drop(self.leaders.insert(at, leader)),
        }
    }
}

struct StoredState<'rows> {
    rows: &'rows Rows,
    at: &'rows Partition,
    now: Instant,
}

impl PartitionState for StoredState<'_> {
    type Error = Infallible;

    fn slot(&self) -> Result<Slot, Infallible> {
        Ok(self.rows.slot(self.at, || self.now))
    }

    fn fence(&self) -> Result<FenceState, Infallible> {
        Ok(FenceState { slot: self.slot()?, last: self.rows.last_batch(self.at) })
    }

    fn version(&self, id: &DocumentId) -> Result<Option<DocumentVersion>, Infallible> {
        Ok(self.rows.documents.get(self.at).and_then(|documents| documents.version(id)))
    }

    fn setting(&self) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.rows.settings.get(self.at).map(|value| value.to_vec()))
    }
}

/// A handle of a [`MemDatabase`].
#[derive(Debug)]
pub struct MemStorage {
    database: Arc<MemDatabase>,
    closed: AtomicBool,
}

impl MemStorage {
    fn open(&self) -> Result<&MemDatabase, HandleClosed> {
        if self.closed.load(Ordering::Acquire) { Err(HandleClosed) } else { Ok(&self.database) }
    }
}

#[async_trait]
impl SysVvmStorage for MemStorage {
    fn limits(&self) -> Limits {
        Limits {
            // No call waits.
            min_ttl: Ttl::MIN,
            max_key_bytes: 1 << 20,
            max_value_bytes: 1 << 20,
            // One scan keeps the lock for about 0.2 ms.
            scan_batch: 1024,
        }
    }

    fn opened(&self) -> Option<OpenedStorage> {
        Some(OpenedStorage::at("mem:", Provenance::Created))
    }

    /// One look-up and one assignment under one lock.
    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        let database = self.open()?;
        let now = database.clock.now();
        let mut rows = database.rows();
        let Ok(decision) = decide(&StoredState { rows: &rows, at: &at, now }, &step);
        match decision {
            Decision::Hold(entry) => rows.put(at, Leader::Held { entry: entry.clone(), issued_at: now }),
            Decision::Vacate(epoch) => rows.put(at, Leader::Released(epoch)),
            Decision::Write(version, writes) => rows.documents.entry(at).or_default().apply(version, writes),
            Decision::Store(value) => drop(rows.settings.insert(at, value.into())),
            Decision::Refuse(shown) => return Ok(StepOutcome::Refused(shown)),
        }
        Ok(StepOutcome::Applied)
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

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        let database = self.open()?;
        Ok(database.rows().settings.get(&at).map(|value| value.to_vec()))
    }

    async fn settings(&self) -> Result<Option<Vec<ListedSetting>>, ReadError> {
        let database = self.open()?;
        let rows = database.rows();
        let listed = rows.settings.iter().map(|(at, value)| (at.clone(), Some(value.to_vec())));
        let mut listed = listed.collect::<Vec<_>>();
        listed.sort_unstable();
        listed.truncate(MOST_LISTED);
        Ok(Some(listed))
    }

    fn document_limits(&self) -> Option<DocumentLimits> {
        Some(DocumentLimits {
            // Keeps a mistake from filling the memory.
            max_id_bytes: 1 << 10,
            max_body_bytes: 1 << 20,
            max_batch_bytes: 16 << 20,
            // With these, one call keeps the lock for about 1 ms.
            max_batch: 1024,
            max_page: 1024,
        })
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let database = self.open()?;
        let rows = database.rows();
        Ok(FenceState { slot: rows.slot(at, || database.clock.now()), last: rows.last_batch(at) })
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        Ok(self.open()?.rows().documents.get(at).and_then(|documents| documents.get(id)))
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        let none = Page { documents: Vec::new(), next: None };
        Ok(self.open()?.rows().documents.get(at).map_or(none, |documents| documents.scan(scan)))
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}
