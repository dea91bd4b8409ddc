//! The rows of slots and settings, the verbs on them, and which error of sled is which error of the contract.
//!
//! Trees `leader` and `setting` have partitions as keys; a third one is `document`. A leader row begins with
//! the epoch and stays after a release, so that the epoch survives (I2).
//!
//! | bytes | 0–7 | 8–23 | 24–31 | 32–39 | 40– |
//! |---|---|---|---|---|---|
//! | held | epoch | incarnation | write | TTL in nanoseconds | holder, UTF-8 |
//! | released | epoch | | | | |
//!
//! Numbers are big-endian. A verb reads, compares and writes; one thread runs all of them.
//!
//! Documents of all partitions are in one tree, where those of a partition are neighbours.
//!
//! | key | value |
//! |---|---|
//! | 0, partition | number of the partition, number of its last batch |
//! | 1, number of the partition, id | number of the batch that put it, body |
//!
//! Numbers have 8 bytes, big-endian. One tree, because sled writes a batch to one tree as a whole. A number
//! in place of the partition keeps keys short: sled writes up to 17 neighbours as one page, and moves a page
//! of 128 KiB or more into a file that it does not sync.

use crate::{
    key::Partition,
    step::{Columns, Decision, Done, RecordColumns, State, Step, decide},
};
use bytes::Bytes;
use ielections::{
    Document, DocumentId, DocumentVersion, DocumentWrite, Entry, FenceState, Page, ReadError, Scan, Slot,
    Vacant, Version, WriteError,
};
use std::{collections::BTreeMap, ops::Bound};
use vvm_clock::{Instant, SystemClock};

/// The rows, and when this process wrote them.
#[derive(Debug)]
pub(super) struct Rows {
    leaders: ::sled::Tree,
    settings: ::sled::Tree,
    documents: ::sled::Tree,
    /// Generates the numbers of partitions with documents.
    database: ::sled::Db,
    /// When each version was written (I5): only by this process, and lost with its last handle.
    issued: BTreeMap<Partition, (Version, Instant)>,
}

impl Rows {
    pub(super) fn of(database: &::sled::Db) -> Result<Self, ::sled::Error> {
        Ok(Self {
            leaders: database.open_tree("leader")?,
            settings: database.open_tree("setting")?,
            documents: database.open_tree("document")?,
            database: database.clone(),
            issued: BTreeMap::new(),
        })
    }

    /// Reads a slot.
    pub(super) fn slot(&self, at: &Partition) -> Result<Slot, DriverError> {
        // (I5) Before the read: an age counted to it is never too large.
        let now = SystemClock::read();
        let Some(row) = self.leaders.get(at.as_bytes())? else {
            return Ok(Slot::Vacant(Vacant { last_epoch: None }));
        };
        let mut slot = decode(&row)?;
        if let Slot::Held { entry, proven_age } = &mut slot {
            let issued = self.issued.get(at).filter(|(version, _)| *version == entry.version);
            *proven_age = issued.map(|(_, issued_at)| now.since(*issued_at));
        }
        Ok(slot)
    }

    /// Carries a step out, if its condition holds. One thread runs all steps.
    pub(super) fn commit(
        &mut self,
        at: &Partition,
        step: &Step,
        issued_at: Instant,
    ) -> Result<Done, WriteError> {
        let stands = Stands { rows: self, at };
        match decide(&stands, step).map_err(DriverError::before_write)? {
            Decision::Hold(entry) => {
                self.insert(&self.leaders, at, &encode(entry))?;
                self.issued.insert(at.clone(), (entry.version, issued_at));
            }
            Decision::Vacate(epoch) => {
                self.insert(&self.leaders, at, &epoch.get().to_be_bytes())?;
                self.issued.remove(at);
            }
            Decision::Write(version, writes) => self.write_documents(at, version, writes)?,
            Decision::Store(value) => self.insert(&self.settings, at, value)?,
            Decision::Refuse(shown) => return Ok(Done::Refused(shown)),
        }
        Ok(Done::Applied)
    }

    pub(super) fn setting(&self, at: &Partition) -> Result<Option<Vec<u8>>, DriverError> {
        Ok(self.settings.get(at.as_bytes())?.map(|value| value.to_vec()))
    }

    pub(super) fn settings(&self) -> Result<Vec<Partition>, DriverError> {
        self.settings.iter().keys().map(|key| Ok(Partition::from_bytes(&*key?))).collect()
    }

    fn insert(&self, tree: &::sled::Tree, at: &Partition, value: &[u8]) -> Result<(), WriteError> {
        tree.insert(at.as_bytes(), value).map_err(|error| DriverError::from(error).while_writing())?;
        Ok(())
    }
}

/// A partition with at least one batch.
struct Count {
    /// The number in the keys of its documents. No other partition ever has it.
    partition: [u8; 8],
    last: DocumentVersion,
}

impl Rows {
    fn count(&self, at: &Partition) -> Result<Option<Count>, DriverError> {
        let Some(row) = self.documents.get(count_key(at))? else { return Ok(None) };
        let (partition, last) = row.split_first_chunk().ok_or_else(short)?;
        Ok(Some(Count { partition: *partition, last: decode_document(last)?.0 }))
    }

    pub(super) fn fence_state(&self, at: &Partition) -> Result<FenceState, DriverError> {
        let last = self.count(at)?.map_or(DocumentVersion::NONE, |count| count.last);
        Ok(FenceState { slot: self.slot(at)?, last })
    }

    fn write_documents(
        &self,
        at: &Partition,
        version: DocumentVersion,
        batch: &[DocumentWrite],
    ) -> Result<(), WriteError> {
        let partition = self.number(at).map_err(DriverError::before_write)?;
        let mut writes = ::sled::Batch::default();
        for write in batch {
            match write {
                DocumentWrite::Put { id, body, .. } => {
                    writes.insert(key(partition, id.as_bytes()), [&number(version), &**body].concat());
                }
                DocumentWrite::Delete { id, .. } => writes.remove(key(partition, id.as_bytes())),
            }
        }
        writes.insert(count_key(at), [partition, number(version)].concat());
        self.documents.apply_batch(writes).map_err(|error| DriverError::from(error).while_writing())
    }

    /// Returns the partition's number, or a new one.
    fn number(&self, at: &Partition) -> Result<[u8; 8], DriverError> {
        match self.count(at)? {
            Some(count) => Ok(count.partition),
            // If the batch fails, the number stays unused.
            None => Ok(self.database.generate_id()?.to_be_bytes()),
        }
    }

    pub(super) fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, DriverError> {
        let Some(Count { partition, .. }) = self.count(at)? else { return Ok(None) };
        let Some(row) = self.documents.get(key(partition, id.as_bytes()))? else { return Ok(None) };
        let (version, body) = decode_document(&row)?;
        Ok(Some(Document { id: id.clone(), version, body: Bytes::copy_from_slice(body) }))
    }

    pub(super) fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, DriverError> {
        let mut page = Page { documents: Vec::new(), next: None };
        let Some(Count { partition, .. }) = self.count(at)? else { return Ok(page) };
        let start = scan.start().map(|id| key(partition, id));
        let partition = key(partition, &[]);
        for row in self.documents.range((start, Bound::Unbounded)) {
            let (key, row) = row?;
            let Some(id) = key.strip_prefix(&*partition) else { break };
            let id = DocumentId::new(Bytes::copy_from_slice(id)).map_err(damaged)?;
            if !scan.takes(&id) {
                break;
            }
            if page.documents.len() >= scan.limit {
                page.next = page.documents.last().map(|last| last.id.clone());
                break;
            }
            let (version, body) = decode_document(&row)?;
            page.documents.push(Document { id, version, body: Bytes::copy_from_slice(body) });
        }
        Ok(page)
    }
}

/// The rows of one partition.
struct Stands<'rows> {
    rows: &'rows Rows,
    at: &'rows Partition,
}

impl State for Stands<'_> {
    type Error = DriverError;

    fn slot(&self) -> Result<Slot, DriverError> {
        self.rows.slot(self.at)
    }

    fn fence(&self) -> Result<FenceState, DriverError> {
        self.rows.fence_state(self.at)
    }

    fn version(&self, id: &DocumentId) -> Result<Option<DocumentVersion>, DriverError> {
        Ok(self.rows.document(self.at, id)?.map(|document| document.version))
    }

    fn setting(&self) -> Result<Option<Vec<u8>>, DriverError> {
        self.rows.setting(self.at)
    }
}

fn encode(entry: &Entry) -> Vec<u8> {
    let RecordColumns { incarnation, write, ttl_nanos, holder } = RecordColumns::of(entry);
    let numbers = [write.to_be_bytes(), ttl_nanos.to_be_bytes()].concat();
    [&entry.epoch.get().to_be_bytes(), incarnation, &numbers, holder].concat()
}

fn decode(row: &[u8]) -> Result<Slot, DriverError> {
    let short = || damaged("a leader row is too short");
    let (epoch, rest) = row.split_first_chunk().ok_or_else(short)?;
    let epoch = u64::from_be_bytes(*epoch);
    let record = if rest.is_empty() {
        None
    } else {
        let (incarnation, rest) = rest.split_at_checked(16).ok_or_else(short)?;
        let (write, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (ttl, holder) = rest.split_first_chunk().ok_or_else(short)?;
        let (write, ttl_nanos) = (u64::from_be_bytes(*write), u64::from_be_bytes(*ttl));
        Some(RecordColumns { incarnation, write, ttl_nanos, holder })
    };
    Columns { epoch, record }.slot().map_err(damaged)
}

fn damaged(what: impl ToString) -> DriverError {
    DriverError::Damaged(what.to_string())
}

fn count_key(at: &Partition) -> Vec<u8> {
    [&[0], at.as_bytes()].concat()
}

fn key(partition: [u8; 8], id: &[u8]) -> Vec<u8> {
    [&[1], &partition[..], id].concat()
}

fn number(version: DocumentVersion) -> [u8; 8] {
    version.get().to_be_bytes()
}

fn decode_document(row: &[u8]) -> Result<(DocumentVersion, &[u8]), DriverError> {
    let (version, body) = row.split_first_chunk().ok_or_else(short)?;
    Ok((DocumentVersion::from_stored(u64::from_be_bytes(*version)), body))
}

fn short() -> DriverError {
    damaged("a row of a document is too short")
}

/// An error of a database in use.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum DriverError {
    #[error("the database is damaged: stop the process and restore the folder from a backup ({0})")]
    Damaged(String),
    #[error("another program has changed the database: {0}")]
    Foreign(String),
    #[error("the disk failed or is full: {0}")]
    Disk(String),
}

impl From<::sled::Error> for DriverError {
    fn from(error: ::sled::Error) -> Self {
        let text = error.to_string();
        match error {
            ::sled::Error::Io(_) => Self::Disk(text),
            ::sled::Error::Corruption { .. } => Self::Damaged(text),
            ::sled::Error::CollectionNotFound(_)
            | ::sled::Error::Unsupported(_)
            | ::sled::Error::ReportableBug(_) => Self::Foreign(text),
        }
    }
}

impl DriverError {
    /// Returns the error of a write that has changed nothing.
    pub(super) fn before_write(self) -> WriteError {
        if self.is_permanent() { WriteError::Fatal(self.into()) } else { WriteError::NotApplied(self.into()) }
    }

    /// Returns the error of a write that may be in memory, in the log, or in both (I7).
    pub(super) fn while_writing(self) -> WriteError {
        WriteError::Unknown(self.into())
    }

    pub(super) fn into_read_error(self) -> ReadError {
        if self.is_permanent() { ReadError::Fatal(self.into()) } else { ReadError::Unavailable(self.into()) }
    }

    fn is_permanent(&self) -> bool {
        match self {
            Self::Damaged(_) | Self::Foreign(_) => true,
            Self::Disk(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ielections::{Epoch, Holder, Incarnation, Ttl};
    use std::io;

    const HEAD: usize = 8 + 16 + 8 + 8;

    #[test]
    fn malformed_row_is_damaged_and_not_vacant() {
        let entry = Entry {
            holder: Holder::new("host").unwrap(),
            version: Version { incarnation: Incarnation::from_bytes([7; 16]), write: 3 },
            ttl: Ttl::DEFAULT,
            epoch: Epoch::new(5).unwrap(),
        };
        let row = encode(&entry);
        assert!(matches!(decode(&row), Ok(Slot::Held { entry: decoded, .. }) if decoded == entry));
        assert_eq!(decode(&row[..8]), Ok(Slot::Vacant(Vacant { last_epoch: Some(entry.epoch) })));
        let cut = (0..HEAD).filter(|length| *length != 8);
        assert!(cut.into_iter().all(|length| matches!(decode(&row[..length]), Err(DriverError::Damaged(_)))));
        assert!(matches!(decode(&[0; HEAD]), Err(DriverError::Damaged(_))), "no epoch");
        assert!(matches!(decode(&[&row[..], b"\xff"].concat()), Err(DriverError::Damaged(_))), "no UTF-8");
    }

    #[test]
    fn each_error_maps_as_documented() {
        let disk = || DriverError::from(::sled::Error::Io(io::ErrorKind::StorageFull.into()));
        assert!(matches!(disk().before_write(), WriteError::NotApplied(_)));
        assert!(matches!(disk().while_writing(), WriteError::Unknown(_)));
        assert!(matches!(disk().into_read_error(), ReadError::Unavailable(_)));
        let permanent = [
            ::sled::Error::Corruption { at: None, bt: () },
            ::sled::Error::CollectionNotFound("leader".into()),
            ::sled::Error::Unsupported(String::new()),
            ::sled::Error::ReportableBug(String::new()),
        ];
        for error in permanent {
            let driver_error = || DriverError::from(error.clone());
            assert!(matches!(driver_error().before_write(), WriteError::Fatal(_)), "{error}");
            assert!(matches!(driver_error().while_writing(), WriteError::Unknown(_)), "{error}");
            assert!(matches!(driver_error().into_read_error(), ReadError::Fatal(_)), "{error}");
        }
    }
}
