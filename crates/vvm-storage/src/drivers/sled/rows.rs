//! The rows of slots and settings, and the verbs on them.
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

mod documents;

use super::errors::DriverError;
use crate::Partition;
use ielections::{
    Claim, Delete, Entry, Epoch, Holder, Incarnation, Slot, Swap, Ttl, Vacant, Version, WriteError,
};
use std::{collections::BTreeMap, time::Duration};
use vvm_clock::{Instant, SystemClock};

const HEAD: usize = 8 + 16 + 8 + 8;

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
        Ok(match decode(&row)? {
            Leader::Released(epoch) => Slot::Vacant(Vacant { last_epoch: Some(epoch) }),
            Leader::Held(entry) => {
                let issued = self.issued.get(at).filter(|(version, _)| *version == entry.version);
                let proven_age = issued.map(|(_, issued_at)| now.since(*issued_at));
                Slot::Held { entry, proven_age }
            }
        })
    }

    pub(super) fn claim(
        &mut self,
        at: &Partition,
        from: &Slot,
        entry: &Entry,
        issued_at: Instant,
    ) -> Result<Claim, WriteError> {
        let stands = self.slot(at).map_err(DriverError::before_write)?;
        if !stands.is_as_expected(from) {
            return Ok(Claim::Refused(stands));
        }
        self.put(at, entry, issued_at)?;
        Ok(Claim::Claimed)
    }

    pub(super) fn renew(
        &mut self,
        at: &Partition,
        held: &Entry,
        entry: &Entry,
        issued_at: Instant,
    ) -> Result<Swap, WriteError> {
        let stands = self.slot(at).map_err(DriverError::before_write)?;
        if !stands.entry().is_some_and(|stands| stands.is_same_write(held)) {
            return Ok(Swap::Mismatch(stands));
        }
        self.put(at, entry, issued_at)?;
        Ok(Swap::Swapped)
    }

    pub(super) fn release(
        &mut self,
        at: &Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let stands = self.slot(at).map_err(DriverError::before_write)?;
        if !stands.entry().is_some_and(|entry| entry.is_of(incarnation, epoch)) {
            return Ok(Delete::Mismatch(stands));
        }
        self.insert(&self.leaders, at, &epoch.get().to_be_bytes())?;
        self.issued.remove(at);
        Ok(Delete::Deleted)
    }

    pub(super) fn settle(&self, at: &Partition, value: &[u8]) -> Result<Vec<u8>, WriteError> {
        if let Some(stands) = self.setting(at).map_err(DriverError::before_write)? {
            return Ok(stands);
        }
        self.insert(&self.settings, at, value)?;
        Ok(value.to_vec())
    }

    pub(super) fn setting(&self, at: &Partition) -> Result<Option<Vec<u8>>, DriverError> {
        Ok(self.settings.get(at.as_bytes())?.map(|value| value.to_vec()))
    }

    fn put(&mut self, at: &Partition, entry: &Entry, issued_at: Instant) -> Result<(), WriteError> {
        self.insert(&self.leaders, at, &encode(entry))?;
        self.issued.insert(at.clone(), (entry.version, issued_at));
        Ok(())
    }

    fn insert(&self, tree: &::sled::Tree, at: &Partition, value: &[u8]) -> Result<(), WriteError> {
        tree.insert(at.as_bytes(), value).map_err(|error| DriverError::from(error).while_writing())?;
        Ok(())
    }
}

enum Leader {
    Released(Epoch),
    Held(Entry),
}

fn encode(entry: &Entry) -> Vec<u8> {
    let holder = entry.holder.as_str().as_bytes();
    let mut row = Vec::with_capacity(HEAD + holder.len());
    row.extend_from_slice(&entry.epoch.get().to_be_bytes());
    row.extend_from_slice(entry.incarnation().as_bytes());
    row.extend_from_slice(&entry.version.write.to_be_bytes());
    // At most 24 h, which fits into 64 bits.
    row.extend_from_slice(&(entry.ttl.get().as_nanos() as u64).to_be_bytes());
    row.extend_from_slice(holder);
    row
}

fn decode(row: &[u8]) -> Result<Leader, DriverError> {
    let short = || damaged("a leader row is too short");
    let (epoch, rest) = row.split_first_chunk().ok_or_else(short)?;
    let epoch = Epoch::new(u64::from_be_bytes(*epoch)).map_err(damaged)?;
    if rest.is_empty() {
        return Ok(Leader::Released(epoch));
    }
    let (incarnation, rest) = rest.split_first_chunk().ok_or_else(short)?;
    let (write, rest) = rest.split_first_chunk().ok_or_else(short)?;
    let (ttl, holder) = rest.split_first_chunk().ok_or_else(short)?;
    Ok(Leader::Held(Entry {
        holder: Holder::new(str::from_utf8(holder).map_err(damaged)?).map_err(damaged)?,
        version: Version {
            incarnation: Incarnation::from_bytes(*incarnation),
            write: u64::from_be_bytes(*write),
        },
        ttl: Ttl::new(Duration::from_nanos(u64::from_be_bytes(*ttl))).map_err(damaged)?,
        epoch,
    }))
}

fn damaged(what: impl ToString) -> DriverError {
    DriverError::Damaged(what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_row_is_damaged_and_not_vacant() {
        let entry = Entry {
            holder: Holder::new("host").unwrap(),
            version: Version { incarnation: Incarnation::from_bytes([7; 16]), write: 3 },
            ttl: Ttl::DEFAULT,
            epoch: Epoch::new(5).unwrap(),
        };
        let row = encode(&entry);
        assert!(matches!(decode(&row), Ok(Leader::Held(decoded)) if decoded == entry));
        assert!(matches!(decode(&row[..8]), Ok(Leader::Released(epoch)) if epoch == entry.epoch));
        let cut = (0..HEAD).filter(|length| *length != 8);
        assert!(cut.into_iter().all(|length| matches!(decode(&row[..length]), Err(DriverError::Damaged(_)))));
        assert!(matches!(decode(&[0; HEAD]), Err(DriverError::Damaged(_))), "no epoch");
        assert!(matches!(decode(&[&row[..], b"\xff"].concat()), Err(DriverError::Damaged(_))), "no UTF-8");
    }
}
