//! The records and documents: the storage contract in its simplest form, independent of every driver.

use crate::ledger::{Outcome, Write};
use bytes::Bytes;
use ielections::{
    Document, DocumentId, DocumentVersion, DocumentWrite, Entry, Epoch, Fence, FenceState, Incarnation, Page,
    Scan, Slot, Vacant,
};
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
    settings: BTreeMap<Bytes, Vec<u8>>,
    worked_at: BTreeMap<u32, Epoch>,
    /// The largest epoch that each slot has had, also before the storage went back.
    claimed_at: BTreeMap<u32, Epoch>,
    /// Whether the last claim raised it.
    epoch_rose: bool,
    /// Whether this storage reports a proven age.
    pub(crate) proves_age: bool,
}

#[derive(Clone, Default)]
struct Cell {
    last_epoch: Option<Epoch>,
    record: Option<Record>,
    /// The last claim: only writes under it may land.
    claim: Option<(Epoch, Incarnation)>,
    last_batch: DocumentVersion,
    documents: BTreeMap<DocumentId, Document>,
    past: Vec<Slot>,
}

/// A copy of all records and documents.
pub(crate) struct Backup(BTreeMap<u32, Cell>);

impl Backup {
    /// Whether the slot is held by this leadership.
    pub(crate) fn is_held_by(&self, key: u32, incarnation: Incarnation) -> bool {
        let record = self.0.get(&key).and_then(|cell| cell.record.as_ref());
        record.is_some_and(|record| record.entry.incarnation() == incarnation)
    }
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

    pub(crate) fn fence_state(&self, key: u32, now: Instant) -> FenceState {
        let last = self.cells.get(&key).map_or(DocumentVersion::NONE, |cell| cell.last_batch);
        FenceState { slot: self.slot(key, now), last }
    }

    pub(crate) fn document(&self, key: u32, id: &DocumentId) -> Option<Document> {
        self.cells.get(&key)?.documents.get(id).cloned()
    }

    pub(crate) fn documents(&self, key: u32) -> impl Iterator<Item = &Document> {
        self.cells.get(&key).into_iter().flat_map(|cell| cell.documents.values())
    }

    pub(crate) fn page(&self, key: u32, scan: &Scan) -> Page {
        let mut left = self.documents(key).filter(|document| scan.takes(&document.id)).cloned();
        let documents: Vec<Document> = left.by_ref().take(scan.limit.max(1)).collect();
        let next = left.next().and_then(|_| Some(documents.last()?.id.clone()));
        Page { documents, next }
    }

    pub(crate) fn settle(&mut self, at: &[u8], value: &[u8]) -> Vec<u8> {
        self.settings.entry(Bytes::copy_from_slice(at)).or_insert_with(|| value.to_vec()).clone()
    }

    pub(crate) fn setting(&self, at: &[u8]) -> Option<Vec<u8>> {
        self.settings.get(at).cloned()
    }

    pub(crate) fn back_up(&self) -> Backup {
        Backup(self.cells.clone())
    }

    /// Goes back to the state of the backup. Settings stay: every process settles the same ones.
    pub(crate) fn restore(&mut self, backup: Backup) {
        self.cells = backup.0;
    }

    /// Applies the write, or returns the slot that refuses it.
    pub(crate) fn apply(&mut self, now: Instant, sent_at: Instant, write: &Write) -> Outcome {
        let key = write.key();
        let before = self.slot(key, now);
        if !self.admits(now, write, &before) {
            return Some(before);
        }
        let cell = self.cells.entry(key).or_default();
        if !matches!(write, Write::Batch(..)) {
            if cell.past.len() == PAST {
                cell.past.remove(0);
            }
            cell.past.push(match before {
                Slot::Held { entry, .. } => Slot::Held { entry, proven_age: None },
                vacant @ Slot::Vacant(_) => vacant,
            });
        }
        match write {
            Write::Insert(_, _, entry) | Write::TakeOver(_, _, entry) => {
                cell.claim = Some((entry.epoch, entry.incarnation()));
                cell.last_epoch = Some(entry.epoch);
                cell.record = Some(Record { entry: entry.clone(), sent_at });
                let before = self.claimed_at.get(&key).copied();
                self.epoch_rose = Some(entry.epoch) > before;
                self.claimed_at.insert(key, before.map_or(entry.epoch, |before| before.max(entry.epoch)));
            }
            Write::Swap(_, _, entry) => {
                cell.record = Some(Record { entry: entry.clone(), sent_at });
            }
            Write::Delete(..) => cell.record = None,
            Write::Batch(_, fence, writes) => cell.write(fence.after.next(), writes),
        }
        None
    }

    fn admits(&self, now: Instant, write: &Write, before: &Slot) -> bool {
        match (write, before) {
            (Write::Insert(_, vacant, _), Slot::Vacant(found)) => vacant == found,
            (Write::TakeOver(_, expected, _) | Write::Swap(_, expected, _), Slot::Held { entry, .. }) => {
                entry.version == expected.version && entry.epoch == expected.epoch
            }
            (Write::Delete(_, incarnation, epoch), Slot::Held { entry, .. }) => {
                entry.incarnation() == *incarnation && entry.epoch == *epoch
            }
            (Write::Batch(key, fence, writes), _) => {
                let version = |id| self.document(*key, id).map(|document| document.version);
                self.fence_state(*key, now).admits(fence)
                    && writes.iter().all(|write| write.only_if().holds(version(write.id())))
            }
            _ => false,
        }
    }

    /// Whether the fence is that of the last claim of the slot.
    pub(crate) fn is_of_last_claim(&self, key: u32, fence: &Fence) -> bool {
        let claim = self.cells.get(&key).and_then(|cell| cell.claim);
        claim == Some((fence.epoch, fence.incarnation))
    }

    /// Whether the slot is held by this leadership.
    pub(crate) fn is_held_by(&self, key: u32, incarnation: Incarnation) -> bool {
        self.record(key).is_some_and(|record| record.entry.incarnation() == incarnation)
    }

    /// Whether the last claim raised the epoch of its slot above all that it has had.
    pub(crate) fn epoch_rose(&self) -> bool {
        self.epoch_rose
    }

    /// Notes that work begins at `epoch`. Returns whether that is larger than every earlier epoch of work.
    pub(crate) fn work_begins(&mut self, key: u32, epoch: Epoch) -> bool {
        let before = self.worked_at.get(&key).copied();
        self.worked_at.insert(key, before.map_or(epoch, |before| before.max(epoch)));
        Some(epoch) > before
    }
}

impl Cell {
    fn write(&mut self, version: DocumentVersion, writes: &[DocumentWrite]) {
        self.last_batch = version;
        for write in writes {
            match write {
                DocumentWrite::Put { id, body, .. } => {
                    let document = Document { id: id.clone(), version, body: body.clone() };
                    self.documents.insert(id.clone(), document);
                }
                DocumentWrite::Delete { id, .. } => {
                    self.documents.remove(id);
                }
            }
        }
    }
}
