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
use crate::Partition;
use ielections::{Claim, Delete, Entry, Epoch, Holder, Incarnation, Slot, Swap, Ttl, Vacant, Version};
use rusqlite::{Connection, OptionalExtension, Row, params};
use stamp::Stamp;
use std::time::Duration;
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

const SETTLE: &str = "INSERT INTO setting (pk, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING";

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

    pub(super) fn claim(
        &self,
        at: &Partition,
        from: &Slot,
        entry: &Entry,
        issued_at: Instant,
    ) -> Result<Claim, DriverError> {
        let stands = self.slot(at)?;
        if !stands.is_as_expected(from) {
            return Ok(Claim::Refused(stands));
        }
        self.put(at, entry, issued_at)?;
        Ok(Claim::Claimed)
    }

    pub(super) fn renew(
        &self,
        at: &Partition,
        held: &Entry,
        entry: &Entry,
        issued_at: Instant,
    ) -> Result<Swap, DriverError> {
        let stands = self.slot(at)?;
        if !stands.entry().is_some_and(|entry| entry.is_same_write(held)) {
            return Ok(Swap::Mismatch(stands));
        }
        self.put(at, entry, issued_at)?;
        Ok(Swap::Swapped)
    }

    pub(super) fn release(
        &self,
        at: &Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, DriverError> {
        let stands = self.slot(at)?;
        if !stands.entry().is_some_and(|entry| entry.is_of(incarnation, epoch)) {
            return Ok(Delete::Mismatch(stands));
        }
        self.connection.prepare_cached(VACATE)?.execute(params![at.as_bytes(), epoch.get().cast_signed()])?;
        Ok(Delete::Deleted)
    }

    pub(super) fn settle(&self, at: &Partition, value: &[u8]) -> Result<Vec<u8>, DriverError> {
        self.connection.prepare_cached(SETTLE)?.execute(params![at.as_bytes(), value])?;
        self.setting(at)?
            .ok_or_else(|| DriverError::Foreign("a setting that was just written is gone".into()))
    }

    pub(super) fn setting(&self, at: &Partition) -> Result<Option<Vec<u8>>, DriverError> {
        let mut statement = self.connection.prepare_cached(SETTING)?;
        Ok(statement.query_row(params![at.as_bytes()], |row| row.get(0)).optional()?)
    }

    fn put(&self, at: &Partition, entry: &Entry, issued_at: Instant) -> Result<(), DriverError> {
        let stamp = self.origin.map(|origin| origin.stamp(issued_at));
        self.connection.prepare_cached(PUT)?.execute(params![
            at.as_bytes(),
            entry.epoch.get().cast_signed(),
            entry.incarnation().as_bytes(),
            // The bits matter, not the sign: versions are only compared for equality.
            entry.version.write.cast_signed(),
            // At most 24 h, which fits into 63 bits.
            entry.ttl.get().as_nanos() as i64,
            entry.holder.as_str(),
            stamp.as_ref().map(|stamp| stamp.issued_at_nanos),
            stamp.as_ref().map(|stamp| &*stamp.boot_id),
            stamp.as_ref().map(|stamp| stamp.time_namespace),
        ])?;
        Ok(())
    }

    fn decode(&self, row: &Row<'_>) -> Result<Slot, DriverError> {
        let epoch: i64 = row.get(0)?;
        let epoch = Epoch::new(epoch.cast_unsigned()).map_err(damaged)?;
        let Some(incarnation) = row.get::<_, Option<[u8; 16]>>(1)? else {
            return Ok(Slot::Vacant(Vacant { last_epoch: Some(epoch) }));
        };
        let (write, ttl, holder): (i64, i64, String) = (row.get(2)?, row.get(3)?, row.get(4)?);
        let entry = Entry {
            holder: Holder::new(holder).map_err(damaged)?,
            version: Version {
                incarnation: Incarnation::from_bytes(incarnation),
                write: write.cast_unsigned(),
            },
            ttl: Ttl::new(Duration::from_nanos(ttl.cast_unsigned())).map_err(damaged)?,
            epoch,
        };
        let stamp = match (row.get(5)?, row.get(6)?, row.get(7)?) {
            (Some(issued_at_nanos), Some(boot_id), Some(time_namespace)) => {
                Some(Stamp { issued_at_nanos, boot_id, time_namespace })
            }
            _ => None,
        };
        let proven_age = self.origin.zip(stamp).and_then(|(origin, stamp)| origin.age(&stamp, self.now));
        Ok(Slot::Held { entry, proven_age })
    }
}

fn damaged(what: impl ToString) -> DriverError {
    DriverError::Damaged(what.to_string())
}
