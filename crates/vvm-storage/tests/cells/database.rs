//! A storage of cells in memory, whose answers are forged.

use async_trait::async_trait;
use bytes::Bytes;
use ielections::{ReadError, WriteError};
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use vvm_storage::{
    Partition,
    cells::{Cell, CellCondition, CellLimits, CellStorage, CellWrite, Tag},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forged {
    WithoutTag,
    /// Not applied; the answer is a refusal although the condition holds.
    Refused,
    /// Sent twice. The second one must find its condition broken.
    Twice,
    AnswerLost,
    Lost,
}

#[derive(Debug, Default)]
pub(crate) struct Database {
    pub(crate) values: Mutex<HashMap<String, Bytes>>,
    /// Former values, which looks show.
    pub(crate) stale: Mutex<HashMap<String, Bytes>>,
    pub(crate) forged: Mutex<VecDeque<Forged>>,
    /// Forges every answer in a way that the suites must not notice.
    pub(crate) always: AtomicBool,
    pub(crate) reads: AtomicUsize,
    pub(crate) writes: AtomicUsize,
}

/// The tag of a value is the value itself, as a digest of the content would be.
#[derive(Debug)]
pub(crate) struct MemCells {
    database: Arc<Database>,
    closed: AtomicBool,
}

impl Database {
    pub(crate) fn open(self: &Arc<Self>) -> MemCells {
        MemCells { database: Arc::clone(self), closed: AtomicBool::default() }
    }

    pub(crate) fn forge(&self, forged: Forged) {
        self.forged.lock().unwrap().push_back(forged);
    }

    /// As a person or a rule of a bucket would.
    pub(crate) fn delete(&self, at: &Partition) {
        self.values.lock().unwrap().remove(&at.encoded()).unwrap();
    }

    pub(crate) fn put(&self, at: &Partition, value: &Bytes) {
        self.values.lock().unwrap().insert(at.encoded(), value.clone());
    }

    pub(crate) fn freeze_looks(&self) {
        *self.stale.lock().unwrap() = self.values.lock().unwrap().clone();
    }

    pub(crate) fn value(&self, at: &Partition) -> Option<Bytes> {
        self.values.lock().unwrap().get(&at.encoded()).cloned()
    }

    pub(crate) fn next_forged(&self) -> Option<Forged> {
        let count = self.writes.fetch_add(1, SeqCst);
        let benign = [Forged::WithoutTag, Forged::Refused, Forged::Twice];
        let always = self.always.load(SeqCst).then(|| benign[count % benign.len()]);
        self.forged.lock().unwrap().pop_front().or(always)
    }

    fn apply(&self, at: &Partition, value: &Bytes, expected: &CellCondition) -> CellWrite {
        let mut values = self.values.lock().unwrap();
        let stands = values.get(&at.encoded()).map(tag);
        let holds = match expected {
            CellCondition::Absent => stands.is_none(),
            CellCondition::Tag(expected) => stands.as_ref() == Some(expected),
        };
        if !holds {
            return CellWrite::Refused;
        }
        values.insert(at.encoded(), value.clone());
        CellWrite::Written(Some(tag(value)))
    }
}

fn tag(value: &Bytes) -> Tag {
    Tag::new(&value[..])
}

#[async_trait]
impl CellStorage for MemCells {
    fn limits(&self) -> CellLimits {
        CellLimits { min_ttl: Duration::from_millis(100), max_key_bytes: 2 << 10, max_cell_bytes: 4 << 20 }
    }

    async fn read(&self, key: &Partition) -> Result<Option<Cell>, ReadError> {
        if self.closed.load(SeqCst) {
            return Err(ReadError::Fatal("closed".into()));
        }
        self.database.reads.fetch_add(1, SeqCst);
        Ok(self.database.value(key).map(|value| Cell { tag: tag(&value), value }))
    }

    async fn peek(&self, key: &Partition) -> Result<Option<Cell>, ReadError> {
        let stale = self.database.stale.lock().unwrap().get(&key.encoded()).cloned();
        match stale {
            Some(value) => Ok(Some(Cell { tag: tag(&value), value })),
            None => self.read(key).await,
        }
    }

    async fn write(
        &self,
        key: &Partition,
        value: Bytes,
        expected: CellCondition,
    ) -> Result<CellWrite, WriteError> {
        if self.closed.load(SeqCst) {
            return Err(WriteError::Fatal("closed".into()));
        }
        let unknown = || Err(WriteError::Unknown("the answer was lost".into()));
        let forged = self.database.next_forged();
        match forged {
            Some(Forged::Refused) => return Ok(CellWrite::Refused),
            Some(Forged::Lost) => return unknown(),
            _ => {}
        }
        let written = self.database.apply(key, &value, &expected);
        match (forged, &written) {
            (Some(Forged::AnswerLost), _) => unknown(),
            (Some(Forged::WithoutTag), CellWrite::Written(_)) => Ok(CellWrite::Written(None)),
            (Some(Forged::Twice), CellWrite::Written(_)) => {
                assert_eq!(self.database.apply(key, &value, &expected), CellWrite::Refused);
                Ok(written)
            }
            _ => Ok(written),
        }
    }

    async fn close(&self) {
        self.closed.store(true, SeqCst);
    }
}
