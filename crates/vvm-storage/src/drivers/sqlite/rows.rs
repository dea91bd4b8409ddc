//! The rows of slots and settings, and the verbs on them.
//!
//! Each slot has one row, which stays after a release, so that the epoch survives (I2). A verb reads,
//! compares and writes within one transaction.

mod description;
mod documents;
mod neighbours;
mod stamp;
#[cfg(test)]
mod tests;

pub(super) use stamp::Origin;

use super::errors::DriverError;
use crate::{
    key::Partition,
    step::{Columns, Decision, Done, RecordColumns, State, Step, decide},
};
use ielections::{DocumentId, DocumentVersion, Entry, FenceState, Slot, Vacant};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use stamp::Stamp;
use vvm_clock::{Instant, SystemClock};

/// The statements that lead from each format to the next. A file's format is the number of those it has.
pub(super) const SCHEMAS: [&str; 2] = [SLOTS_AND_SETTINGS, documents::DOCUMENTS];

const SLOTS_AND_SETTINGS: &str = "
    CREATE TABLE leader (
        pk BLOB PRIMARY KEY NOT NULL,
        epoch INTEGER NOT NULL,
        incarnation BLOB,
        write INTEGER,
        ttl_nanos INTEGER,
        holder TEXT,
        issued_at_nanos INTEGER,
        boot_id TEXT,
        time_namespace INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE setting (
        pk BLOB PRIMARY KEY NOT NULL,
        value BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
";

const READ: &str = "
    SELECT epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace
    FROM leader WHERE pk = ?1";

const PUT: &str = "
    INSERT OR REPLACE INTO leader
        (pk, epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

const VACATE: &str = "INSERT OR REPLACE INTO leader (pk, epoch) VALUES (?1, ?2)";

const SETTLE: &str = "INSERT INTO setting (pk, value) VALUES (?1, ?2)";

const SETTING: &str = "SELECT value FROM setting WHERE pk = ?1";

/// The rows, as seen at one moment.
#[derive(Debug)]
pub(super) struct Rows<'database> {
    connection: &'database Connection,
    origin: Option<&'database Origin>,
    /// Read before the rows are: an age counted to it is never too large (I5).
    now: Instant,
}

impl<'database> Rows<'database> {
    pub(super) fn of(connection: &'database Connection, origin: Option<&'database Origin>) -> Self {
        Self { connection, origin, now: SystemClock::read() }
    }

    /// Reads a slot.
    pub(super) fn slot(&self, at: &Partition) -> Result<Slot, DriverError> {
        let mut statement = self.connection.prepare_cached(READ)?;
        let slot = statement.query_row(params![at.as_bytes()], |row| Ok(self.decode(row))).optional()?;
        slot.unwrap_or(Ok(Slot::Vacant(Vacant { last_epoch: None })))
    }

    /// Carries a step out, if its condition holds. The caller has the write lock.
    pub(super) fn commit(
        &self,
        at: &Partition,
        step: &Step,
        issued_at: Instant,
    ) -> Result<Done, DriverError> {
        let key = at.as_bytes();
        match decide(&Stands { rows: self, at }, step)? {
            Decision::Hold(entry) => self.put(at, entry, issued_at)?,
            Decision::Vacate(epoch) => self.run(VACATE, params![key, epoch.get().cast_signed()])?,
            Decision::Write(version, writes) => self.write_documents(at, version, writes)?,
            Decision::Store(value) => self.run(SETTLE, params![key, value])?,
            Decision::Refuse(shown) => return Ok(Done::Refused(shown)),
        }
        Ok(Done::Applied)
    }

    fn run(&self, statement: &str, values: &[&dyn ToSql]) -> Result<(), DriverError> {
        self.connection.prepare_cached(statement)?.execute(values)?;
        Ok(())
    }

    pub(super) fn setting(&self, at: &Partition) -> Result<Option<Vec<u8>>, DriverError> {
        let mut statement = self.connection.prepare_cached(SETTING)?;
        Ok(statement.query_row(params![at.as_bytes()], |row| row.get(0)).optional()?)
    }

    fn put(&self, at: &Partition, entry: &Entry, issued_at: Instant) -> Result<(), DriverError> {
        let stamp = self.origin.map(|origin| origin.stamp(issued_at));
        let RecordColumns { incarnation, write, ttl_nanos, .. } = RecordColumns::of(entry);
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

/// The rows of one partition.
struct Stands<'rows> {
    rows: &'rows Rows<'rows>,
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
        self.rows.document_version(self.at, id)
    }

    fn setting(&self) -> Result<Option<Vec<u8>>, DriverError> {
        self.rows.setting(self.at)
    }
}

fn damaged(what: impl ToString) -> DriverError {
    DriverError::Damaged(what.to_string())
}
