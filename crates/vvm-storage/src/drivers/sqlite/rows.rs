//! The rows of slots, settings and documents, and the steps on them. A slot's row stays after a release, so that the
//! epoch survives (I2). A savepoint undoes a batch that fails half-way (a full disk) and leaves the other writes. Slots
//! that are neighbours in the index are read with one statement: those of a cluster are, and every candidate reads all
//! of them. For a thousand candidates and a thousand slots, a million searches took a minute.

use super::{
    DriverError,
    statements::{
        COUNT_BATCH, DELETE_DOCUMENT, FENCE, PUT, PUT_DOCUMENT, READ, READ_BETWEEN, READ_DOCUMENT, READ_FEW,
        SCAN_DOCUMENTS, SETTING, SETTINGS, SETTLE, VACATE, VERSION_OF_DOCUMENT,
    },
};
use crate::{
    key::Partition,
    step::{Columns, Decision, PartitionState, RecordColumns, Step, StepOutcome, decide},
    sysvvm::{Description, ListedSetting, MOST_LISTED},
};
use bytes::Bytes;
use ielections::{
    Document, DocumentId, DocumentVersion, DocumentWrite, Entry, FenceState, Page, Scan, Slot, Vacant,
};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use std::{ops::Bound, sync::Arc, time::Duration};
use vvm_clock::{Instant, SystemClock};

/// How many bytes the keys of a listing have together: a key may have more than a name as a rule has.
const MOST_LISTED_BYTES: usize = 4 << 20;

/// A page ends with the document that reaches this size: reading it keeps the thread.
const PAGE_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Rows<'database> {
    pub(super) connection: &'database Connection,
    origin: Option<&'database Origin>,
    /// Read before the rows are: an age counted to it is never too large (I5).
    now: Instant,
}

impl<'database> Rows<'database> {
    pub(super) fn new(connection: &'database Connection, origin: Option<&'database Origin>) -> Self {
        Self { connection, origin, now: SystemClock::read() }
    }

    pub(super) fn slot(&self, at: &Partition) -> Result<Slot, DriverError> {
        let mut statement = self.connection.prepare_cached(READ)?;
        let slot = statement.query_row(params![at.as_bytes()], |row| Ok(self.decode(row))).optional()?;
        slot.unwrap_or(Ok(Slot::Vacant(Vacant { last_epoch: None })))
    }

    /// The caller has the write lock.
    pub(super) fn commit(
        &self,
        at: &Partition,
        step: &Step,
        issued_at: Instant,
    ) -> Result<StepOutcome, DriverError> {
        let key = at.as_bytes();
        match decide(&RowState { rows: self, at }, step)? {
            Decision::Hold(entry) => self.put(at, entry, issued_at)?,
            Decision::Vacate(epoch) => self.run(VACATE, params![key, epoch.get().cast_signed()])?,
            Decision::Write(version, writes) => self.write_documents(at, version, writes)?,
            Decision::Store(value) => self.run(SETTLE, params![key, value])?,
            Decision::Refuse(shown) => return Ok(StepOutcome::Refused(shown)),
        }
        Ok(StepOutcome::Applied)
    }

    fn run(&self, statement: &str, values: &[&dyn ToSql]) -> Result<(), DriverError> {
        self.connection.prepare_cached(statement)?.execute(values)?;
        Ok(())
    }

    pub(super) fn setting(&self, at: &Partition) -> Result<Option<Vec<u8>>, DriverError> {
        let mut statement = self.connection.prepare_cached(SETTING)?;
        Ok(statement.query_row(params![at.as_bytes()], |row| row.get(0)).optional()?)
    }

    pub(super) fn settings(&self) -> Result<Vec<ListedSetting>, DriverError> {
        let mut statement = self.connection.prepare(SETTINGS)?;
        let mut rows = statement.query(params![MOST_LISTED as i64])?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let (key, value): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
            bytes += key.len() + value.len();
            if bytes > MOST_LISTED_BYTES {
                break;
            }
            found.push((Partition::from_bytes(key), Some(value)));
        }
        Ok(found)
    }

    fn put(&self, at: &Partition, entry: &Entry, issued_at: Instant) -> Result<(), DriverError> {
        let stamp = self.origin.map(|origin| origin.stamp(issued_at));
        let RecordColumns { incarnation, write, ttl_nanos, .. } = RecordColumns::new(entry);
        self.run(
            PUT,
            params![
                at.as_bytes(),
                entry.epoch.get().cast_signed(),
                incarnation,
                write.cast_signed(),
                ttl_nanos.cast_signed(),
                entry.holder.as_str(),
                stamp.as_ref().map(|stamp| stamp.issued_at_nanos),
                stamp.as_ref().map(|stamp| &*stamp.boot_id),
                stamp.as_ref().map(|stamp| stamp.time_namespace),
            ],
        )
    }

    fn decode(&self, row: &Row<'_>) -> Result<Slot, DriverError> {
        let number = |column| Ok::<_, DriverError>(row.get::<_, i64>(column)?.cast_unsigned());
        let incarnation: Option<[u8; 16]> = row.get(1)?;
        let holder: Option<String> = row.get(4)?;
        let record = match &incarnation {
            None => None,
            Some(incarnation) => {
                let holder = holder.as_deref().ok_or_else(|| damaged("a record without a holder"))?;
                let (write, ttl_nanos) = (number(2)?, number(3)?);
                Some(RecordColumns { incarnation, write, ttl_nanos, holder: holder.as_bytes() })
            }
        };
        let mut slot = Columns { epoch: number(0)?, record }.slot().map_err(damaged)?;
        if let Slot::Held { proven_age, .. } = &mut slot
            && let (Some(issued_at_nanos), Some(boot_id), Some(time_namespace)) =
                (row.get(5)?, row.get(6)?, row.get(7)?)
        {
            let stamp = Stamp { issued_at_nanos, boot_id, time_namespace };
            *proven_age = self.origin.and_then(|origin| origin.age(&stamp, self.now));
        }
        Ok(slot)
    }
}

const SYNCHRONOUS: [&str; 4] = ["off", "normal", "full", "extra"];

impl Rows<'_> {
    pub(super) fn fence_state(&self, at: &Partition) -> Result<FenceState, DriverError> {
        let mut statement = self.connection.prepare_cached(FENCE)?;
        let mut rows = statement.query(params![at.as_bytes()])?;
        let Some(row) = rows.next()? else {
            let slot = Slot::Vacant(Vacant { last_epoch: None });
            return Ok(FenceState { slot, last: DocumentVersion::NONE });
        };
        let last = row.get::<_, Option<i64>>(8)?.map_or(DocumentVersion::NONE, version);
        Ok(FenceState { slot: self.decode(row)?, last })
    }

    fn write_documents(
        &self,
        at: &Partition,
        version: DocumentVersion,
        batch: &[DocumentWrite],
    ) -> Result<(), DriverError> {
        let key = at.as_bytes();
        let number = version.get().cast_signed();
        self.all_or_nothing(|| {
            for write in batch {
                match write {
                    DocumentWrite::Put { id, body, .. } => {
                        self.run(PUT_DOCUMENT, params![key, id.as_bytes(), number, &**body])?;
                    }
                    DocumentWrite::Delete { id, .. } => {
                        self.run(DELETE_DOCUMENT, params![key, id.as_bytes()])?
                    }
                }
            }
            self.run(COUNT_BATCH, params![key, number])
        })
    }

    fn all_or_nothing(&self, work: impl FnOnce() -> Result<(), DriverError>) -> Result<(), DriverError> {
        let run = |statement: &str| self.connection.prepare_cached(statement)?.execute([]);
        run("SAVEPOINT batch")?;
        let outcome = work();
        // If SQLite has rolled back the whole transaction, there is no savepoint.
        if outcome.is_err() && !self.connection.is_autocommit() {
            let undone = run("ROLLBACK TO batch");
            if undone.and_then(|_| run("RELEASE batch")).is_err() {
                // The batch must not be committed in part. The other writes are applied again.
                run("ROLLBACK")?;
            }
            return outcome;
        }
        if outcome.is_ok() {
            run("RELEASE batch")?;
        }
        outcome
    }

    fn document_version(
        &self,
        at: &Partition,
        id: &DocumentId,
    ) -> Result<Option<DocumentVersion>, DriverError> {
        let mut statement = self.connection.prepare_cached(VERSION_OF_DOCUMENT)?;
        let found =
            statement.query_row(params![at.as_bytes(), id.as_bytes()], |row| row.get(0)).optional()?;
        Ok(found.map(version))
    }

    pub(super) fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, DriverError> {
        let mut statement = self.connection.prepare_cached(READ_DOCUMENT)?;
        let found = statement
            .query_row(params![at.as_bytes(), id.as_bytes()], |row| {
                Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?))
            })
            .optional()?;
        Ok(found.map(|(number, body)| Document {
            id: id.clone(),
            version: version(number),
            body: body.into(),
        }))
    }

    pub(super) fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, DriverError> {
        let start = match scan.start() {
            // The next larger id is this one with a zero byte appended.
            Bound::Excluded(after) => [after, &[0]].concat(),
            Bound::Included(start) => start.to_vec(),
            Bound::Unbounded => Vec::new(),
        };
        let mut statement = self.connection.prepare_cached(SCAN_DOCUMENTS)?;
        let mut rows = statement.query(params![at.as_bytes(), start])?;
        let (mut page, mut bytes) = (Page { documents: Vec::new(), next: None }, 0);
        while let Some(row) = rows.next()? {
            let id = DocumentId::new(row.get::<_, Vec<u8>>(0)?).map_err(damaged)?;
            if !scan.takes(&id) {
                break;
            }
            if page.documents.len() >= scan.limit || bytes >= PAGE_BYTES {
                page.next = page.documents.last().map(|last| last.id.clone());
                break;
            }
            let body = Bytes::from(row.get::<_, Vec<u8>>(2)?);
            bytes += body.len();
            page.documents.push(Document { id, version: version(row.get(1)?), body });
        }
        Ok(page)
    }
}

impl Rows<'_> {
    pub(super) fn describe(&self) -> Result<Description, DriverError> {
        let journal: String = self.connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        let synchronous: i64 = self.connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
        let synchronous = usize::try_from(synchronous).ok().and_then(|number| SYNCHRONOUS.get(number));
        Ok(Description::new(format!("SQLite {}", rusqlite::version()))
            .with("journal mode", journal)
            .with("synchronous", synchronous.unwrap_or(&"unknown")))
    }
}

struct RowState<'rows> {
    rows: &'rows Rows<'rows>,
    at: &'rows Partition,
}

impl PartitionState for RowState<'_> {
    type Error = DriverError;

    fn slot(&self) -> Result<Slot, DriverError> {
        self.rows.slot(self.at)
    }

    fn fence(&self) -> Result<FenceState, DriverError> {
        self.rows.fence_state(self.at)
    }

    fn version(&self, id: &DocumentId) -> Result<Option<DocumentVersion>, DriverError> {
        self.rows.document_version(self.at, id)
    }

    fn setting(&self) -> Result<Option<Vec<u8>>, DriverError> {
        self.rows.setting(self.at)
    }
}

pub(super) fn version(stored: i64) -> DocumentVersion {
    DocumentVersion::from_stored(stored.cast_unsigned())
}

fn damaged(what: impl ToString) -> DriverError {
    DriverError::Damaged(what.to_string())
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Origin {
    boot_id: Arc<str>,
    time_namespace: i64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    pub(super) issued_at_nanos: i64,
    pub(super) boot_id: Arc<str>,
    pub(super) time_namespace: i64,
}

impl Origin {
    /// Returns this process's clock. `None` if the system does not tell: then no age is proven.
    pub(super) fn of_this_process() -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let time_namespace = std::fs::metadata("/proc/self/ns/time").ok()?.ino().cast_signed();
        let boot_id = boot_id.trim();
        (!boot_id.is_empty()).then(|| Self { boot_id: boot_id.into(), time_namespace })
    }

    pub(super) fn stamp(&self, issued_at: Instant) -> Stamp {
        Stamp {
            // Enough for 292 years of uptime.
            issued_at_nanos: issued_at.as_nanos().cast_signed(),
            boot_id: Arc::clone(&self.boot_id),
            time_namespace: self.time_namespace,
        }
    }

    /// Returns the age of the stamp, if this clock can be compared with its clock (I5).
    pub(super) fn age(&self, stamp: &Stamp, now: Instant) -> Option<Duration> {
        if *stamp != (Stamp { issued_at_nanos: stamp.issued_at_nanos, ..self.stamp(now) }) {
            return None;
        }
        let issued_at = Instant::from_nanos(u64::try_from(stamp.issued_at_nanos).ok()?);
        (issued_at <= now).then(|| now.since(issued_at))
    }
}

const FEW: usize = 3;

impl Rows<'_> {
    pub(in super::super) fn slots(&self, at: &[Partition]) -> Result<Vec<Slot>, DriverError> {
        let mut slots = vec![Slot::Vacant(Vacant { last_epoch: None }); at.len()];
        if at.len() <= FEW {
            self.read_few(at, &mut slots)?;
            return Ok(slots);
        }
        let mut asked: Vec<usize> = (0..at.len()).collect();
        asked.sort_unstable_by_key(|&index| &at[index]);
        // Partitions of another kind have another first byte, and all other clusters lie in between. That of
        // a slot is the smallest: requests are read after slots.
        for asked in asked.chunk_by(|&one, &next| at[one].as_bytes().first() == at[next].as_bytes().first()) {
            self.read_neighbours(at, asked, &mut slots)?;
        }
        Ok(slots)
    }

    fn read_few(&self, at: &[Partition], slots: &mut [Slot]) -> Result<(), DriverError> {
        let mut statement = self.connection.prepare_cached(READ_FEW)?;
        // NULL equals no key.
        let key = |place: usize| at.get(place).map(Partition::as_bytes);
        let mut rows = statement.query(params![key(0), key(1), key(2)])?;
        while let Some(row) = rows.next()? {
            slots[usize::from(row.get::<_, u16>(8)?)] = self.decode(row)?;
        }
        Ok(())
    }

    /// Reads those of `at` that are `asked` for, in the order of their keys.
    fn read_neighbours(
        &self,
        at: &[Partition],
        asked: &[usize],
        slots: &mut [Slot],
    ) -> Result<(), DriverError> {
        let (Some(&first), Some(&last)) = (asked.first(), asked.last()) else { return Ok(()) };
        let mut left = asked.iter().copied().peekable();
        let mut statement = self.connection.prepare_cached(READ_BETWEEN)?;
        let mut rows = statement.query(params![at[first].as_bytes(), at[last].as_bytes()])?;
        let mut others = 0;
        while let Some(row) = rows.next()? {
            let key = row.get_ref(8)?.as_blob().map_err(damaged)?;
            while left.next_if(|&index| at[index].as_bytes() < key).is_some() {}
            if left.peek().is_none_or(|&index| at[index].as_bytes() != key) {
                others += 1;
            }
            // One slot may occur twice in `at`.
            while let Some(index) = left.next_if(|&index| at[index].as_bytes() == key) {
                slots[index] = self.decode(row)?;
            }
            if others > asked.len() {
                // They are not neighbours: the scan could read the whole table.
                for &index in asked {
                    slots[index] = self.slot(&at[index])?;
                }
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{drivers::sqlite::statements::SCHEMA, step::Step};
    use ielections::Entry;
    use rusqlite::Connection;
    use vvm_clock::Instant;

    fn origin(boot_id: &str, time_namespace: i64) -> Origin {
        Origin { boot_id: boot_id.into(), time_namespace }
    }

    #[test]
    fn age_is_proven_only_to_the_same_boot_and_namespace() {
        let here = origin("a", 1);
        let now = Instant::from_nanos(1_000);
        let stamp = here.stamp(Instant::from_nanos(400));
        assert_eq!(here.age(&stamp, now), Some(Duration::from_nanos(600)));
        assert_eq!(here.age(&here.stamp(now), now), Some(Duration::ZERO));
        assert_eq!(origin("b", 1).age(&stamp, now), None);
        assert_eq!(origin("a", 2).age(&stamp, now), None);
    }

    #[test]
    fn clock_of_this_process_is_known() {
        let here = Origin::of_this_process().unwrap();
        assert_eq!(here.boot_id.len(), 36, "{here:?}");
        assert_eq!(Origin::of_this_process().unwrap(), here);
    }

    fn partition(number: u16) -> Partition {
        Partition::from_bytes(number.to_be_bytes())
    }

    fn entry(number: u16) -> Entry {
        ielections::testing::entry(7, number.into(), 1)
    }

    #[test]
    fn range_scan_finds_the_same_as_single_searches() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        let rows = Rows { connection: &connection, origin: None, now: Instant::ORIGIN };
        for number in (100..400).step_by(3) {
            rows.put(&partition(number), &entry(number), Instant::ORIGIN).unwrap();
        }
        let released = entry(103);
        let release = Step::release(released.incarnation(), released.epoch);
        rows.commit(&partition(103), &release, Instant::ORIGIN).unwrap();

        let lists: [Vec<u16>; 9] = [
            vec![],
            vec![100],
            vec![99, 401],
            // All, in reverse order; a range with gaps; one slot twice.
            (0..500).rev().collect(),
            (200..260).collect(),
            vec![103, 130, 103, 130, 131],
            // More other rows in between than slots to read.
            vec![397, 100, 250],
            vec![397, 101, 100, 255, 256],
            vec![256, 103, 256],
        ];
        for numbers in lists {
            let asked: Vec<_> = numbers.into_iter().map(partition).collect();
            let expected: Vec<_> = asked.iter().map(|at| rows.slot(at).unwrap()).collect();
            assert_eq!(rows.slots(&asked).unwrap(), expected, "{asked:?}");
        }
    }
}
