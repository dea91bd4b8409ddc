//! The records: the storage contract in its simplest form, independent of every driver.

use crate::write::{Outcome, Write};
use ielections::{Entry, Epoch, Slot, Vacant};
use std::collections::BTreeMap;
use vvm_clock::Instant;

#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) entry: Entry,
    /// When the call that wrote it was sent, in true time.
    pub(crate) sent_at: Instant,
}

#[derive(Default)]
pub(crate) struct Records {
    cells: BTreeMap<u32, Cell>,
    epoch_fell: bool,
    /// Whether this storage reports a proven age.
    pub(crate) proves_age: bool,
}

#[derive(Default)]
struct Cell {
    last_epoch: Option<Epoch>,
    record: Option<Record>,
    past: Vec<Slot>,
    worked_at: Option<Epoch>,
}

/// How many earlier states a stale read may show.
const PAST: usize = 8;

impl Records {
    pub(crate) fn record(&self, key: u32) -> Option<&Record> {
        self.cells.get(&key)?.record.as_ref()
    }

    pub(crate) fn slot(&self, key: u32, now: Instant) -> Slot {
        let Some(cell) = self.cells.get(&key) else { return Slot::Vacant(Vacant::default()) };
        match &cell.record {
            None => Slot::Vacant(Vacant { last_epoch: cell.last_epoch }),
            Some(Record { entry, sent_at }) => {
                Slot::Held { entry: entry.clone(), proven_age: self.proves_age.then(|| now.since(*sent_at)) }
            }
        }
    }

    /// An earlier state of the slot. It has no proven age.
    pub(crate) fn past(&self, key: u32, share: f64) -> Option<Slot> {
        let past = &self.cells.get(&key)?.past;
        past.get((past.len() as f64 * share) as usize).cloned()
    }

    /// Applies the write, or returns the slot that refuses it.
    pub(crate) fn apply(&mut self, now: Instant, sent_at: Instant, write: &Write) -> Outcome {
        let key = write.key();
        let before = self.slot(key, now);
        let applies = match (write, &before) {
            (Write::Insert(_, vacant, _), Slot::Vacant(found)) => vacant == found,
            (Write::TakeOver(_, expected, _) | Write::Swap(_, expected, _), Slot::Held { entry, .. }) => {
                entry.version == expected.version && entry.epoch == expected.epoch
            }
            (Write::Delete(_, incarnation, epoch), Slot::Held { entry, .. }) => {
                entry.incarnation() == *incarnation && entry.epoch == *epoch
            }
            _ => false,
        };
        if !applies {
            return Some(before);
        }
        let cell = self.cells.entry(key).or_default();
        if cell.past.len() == PAST {
            cell.past.remove(0);
        }
        cell.past.push(match before {
            Slot::Held { entry, .. } => Slot::Held { entry, proven_age: None },
            vacant @ Slot::Vacant(_) => vacant,
        });
        match write {
            Write::Insert(_, _, entry) | Write::TakeOver(_, _, entry) => {
                self.epoch_fell |= Some(entry.epoch) <= cell.last_epoch;
                cell.last_epoch = Some(entry.epoch);
                cell.record = Some(Record { entry: entry.clone(), sent_at });
            }
            Write::Swap(_, held, entry) => {
                self.epoch_fell |= entry.epoch != held.epoch;
                cell.record = Some(Record { entry: entry.clone(), sent_at });
            }
            Write::Delete(..) => cell.record = None,
        }
        None
    }

    /// Whether every claim so far raised the epoch of its slot, and every renewal kept it.
    pub(crate) fn epoch_rose(&self) -> bool {
        !self.epoch_fell
    }

    /// Notes that work begins at `epoch`. Returns whether that is larger than every earlier epoch of work.
    pub(crate) fn work_begins(&mut self, key: u32, epoch: Epoch) -> bool {
        let cell = self.cells.entry(key).or_default();
        let rose = Some(epoch) > cell.worked_at;
        cell.worked_at = cell.worked_at.max(Some(epoch));
        rose
    }
}
