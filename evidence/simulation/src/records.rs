//! Records and documents ([`Records`]): the storage contract in its simplest form, independent of every driver.
//! [`Ledger`]: which batches of documents have landed, to compare with what their writers were told (I2, I7).

use bytes::Bytes;
use ielections::{
    Document, DocumentId, DocumentVersion, DocumentWrite, Entry, Epoch, Fence, FenceState, Incarnation, Page,
    Scan, Slot, Vacant,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};
use vvm_clock::Instant;

#[derive(Clone)]
pub(crate) enum Write {
    Insert(u32, Vacant, Entry),
    TakeOver(u32, Entry, Entry),
    Swap(u32, Entry, Entry),
    Delete(u32, Incarnation, Epoch),
    Batch(u32, Fence, Arc<[DocumentWrite]>),
}

/// The outcome of a write: `None` if it was applied, or else the slot that refused it.
pub(crate) type Outcome = Option<Slot>;

impl Write {
    pub(crate) fn key(&self) -> u32 {
        match self {
            Self::Insert(key, ..)
            | Self::TakeOver(key, ..)
            | Self::Swap(key, ..)
            | Self::Delete(key, ..)
            | Self::Batch(key, ..) => *key,
        }
    }

    /// The incarnation of the leadership under which it is written; `None` for a claim.
    pub(crate) fn leadership(&self) -> Option<Incarnation> {
        match self {
            Self::Insert(..) | Self::TakeOver(..) => None,
            Self::Swap(_, held, _) => Some(held.incarnation()),
            Self::Delete(_, incarnation, _) => Some(*incarnation),
            Self::Batch(_, fence, _) => Some(fence.incarnation),
        }
    }
}

/// Short: a trace has many of them.
impl fmt::Debug for Write {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |entry: &Entry| format!("{} {:?}", entry.epoch, entry.version);
        match self {
            Self::Insert(key, vacant, entry) => {
                write!(out, "claim {key} after {:?}: {}, TTL {}", vacant.last_epoch, name(entry), entry.ttl)
            }
            Self::TakeOver(key, from, entry) => {
                write!(out, "take over {key} from {}: {}, TTL {}", name(from), name(entry), entry.ttl)
            }
            Self::Swap(key, held, entry) => {
                write!(out, "renew {key}: {}, before {}", name(entry), held.version.write)
            }
            Self::Delete(key, incarnation, epoch) => write!(out, "release {key}: {epoch} {incarnation:?}"),
            Self::Batch(key, fence, writes) => write!(out, "batch {key}: {fence:?}, {} writes", writes.len()),
        }
    }
}

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
    epoch_rose: bool,
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

pub(crate) struct Backup(BTreeMap<u32, Cell>);

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

    pub(crate) fn page(&self, key: u32, scan: &Scan) -> Page {
        let all = self.cells.get(&key).into_iter().flat_map(|cell| cell.documents.values());
        let mut left = all.filter(|document| scan.takes(&document.id)).cloned();
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

    pub(crate) fn is_of_last_claim(&self, key: u32, fence: &Fence) -> bool {
        let claim = self.cells.get(&key).and_then(|cell| cell.claim);
        claim == Some((fence.epoch, fence.incarnation))
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

/// Identifies one batch of a simulated service: the leadership, its writer, and the number of the batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Token {
    pub(crate) incarnation: Incarnation,
    pub(crate) writer: u32,
    pub(crate) number: u64,
}

/// The first bytes of the ids that simulated services use. A host's history has others.
const PREFIX: &[u8] = b"sim/";

impl Token {
    pub(crate) fn body(self) -> Bytes {
        let mut body = self.incarnation.as_bytes().to_vec();
        body.extend_from_slice(&self.writer.to_be_bytes());
        body.extend_from_slice(&self.number.to_be_bytes());
        body.into()
    }

    fn of(write: &DocumentWrite) -> Option<Self> {
        let DocumentWrite::Put { id, body, .. } = write else { return None };
        let body = id.as_bytes().starts_with(PREFIX).then_some(body)?;
        let (incarnation, rest) = body.split_first_chunk()?;
        let (writer, number) = rest.split_first_chunk()?;
        Some(Self {
            incarnation: Incarnation::from_bytes(*incarnation),
            writer: u32::from_be_bytes(*writer),
            number: u64::from_be_bytes(number.try_into().ok()?),
        })
    }
}

pub(crate) fn document(number: u32) -> Option<DocumentId> {
    DocumentId::new([PREFIX, &number.to_be_bytes()].concat()).ok()
}

#[derive(Default)]
pub(crate) struct Ledger {
    landed: BTreeMap<(u32, DocumentVersion), BTreeSet<Token>>,
    last: BTreeMap<(Incarnation, u32), u64>,
    /// Batches whose writers were told that they will never be applied.
    never: BTreeSet<Token>,
}

impl Ledger {
    /// Notes a batch that was applied. Fails if it must not have been, or not now.
    pub(crate) fn lands(
        &mut self,
        key: u32,
        version: DocumentVersion,
        writes: &[DocumentWrite],
    ) -> Result<(), String> {
        let tokens: BTreeSet<Token> = writes.iter().filter_map(Token::of).collect();
        for token in &tokens {
            if self.never.contains(token) {
                return Err(format!("{token:?} lands, although its writer was told that it never will"));
            }
            let last = self.last.entry((token.incarnation, token.writer)).or_default();
            if *last >= token.number {
                return Err(format!("{token:?} lands after batch {last} of the same writer"));
            }
            *last = token.number;
        }
        self.landed.insert((key, version), tokens);
        Ok(())
    }

    pub(crate) fn has_landed(&self, key: u32, version: DocumentVersion, token: &Token) -> bool {
        self.landed.get(&(key, version)).is_some_and(|tokens| tokens.contains(token))
    }

    /// Notes that the writer was told that the batch is never applied. Returns whether it was.
    pub(crate) fn never_lands(&mut self, token: Token) -> bool {
        let last = self.last.get(&(token.incarnation, token.writer));
        self.never.insert(token);
        last.is_some_and(|last| *last >= token.number)
            && self.landed.values().any(|tokens| tokens.contains(&token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ielections::OnlyIf;

    fn token(number: u64) -> Token {
        Token { incarnation: Incarnation::from_bytes([1; 16]), writer: 1, number }
    }

    fn put(number: u64) -> Vec<DocumentWrite> {
        vec![DocumentWrite::Put {
            id: document(1).unwrap(),
            body: token(number).body(),
            only_if: OnlyIf::Always,
        }]
    }

    /// Shows I2.
    #[test]
    fn batch_lands_once_and_in_order() {
        let mut ledger = Ledger::default();
        let version = DocumentVersion::NONE.next();
        assert_eq!(ledger.lands(1, version, &put(2)), Ok(()));
        assert!(ledger.lands(1, version.next(), &put(2)).is_err());
        assert!(ledger.lands(1, version.next(), &put(1)).is_err());
        assert!(ledger.has_landed(1, version, &token(2)));
        assert!(!ledger.has_landed(1, version.next(), &token(2)));
    }

    /// Shows I7.
    #[test]
    fn batch_of_which_its_writer_was_told_that_it_never_lands_must_not_land() {
        let mut ledger = Ledger::default();
        assert!(!ledger.never_lands(token(1)));
        assert!(ledger.lands(1, DocumentVersion::NONE.next(), &put(1)).is_err());
        assert_eq!(ledger.lands(1, DocumentVersion::NONE.next(), &put(2)), Ok(()));
        assert!(ledger.never_lands(token(2)));
    }
}
