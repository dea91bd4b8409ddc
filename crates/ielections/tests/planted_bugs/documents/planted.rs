//! A storage whose documents have one bug. Real storages have had each of them. Its leader records are those
//! of the model.

use super::Bug;
use crate::Name;
use async_trait::async_trait;
use bytes::Bytes;
use ielections::{
    BatchOutcome, Claim, Delete, Document, DocumentId, DocumentLimits, DocumentStorage, DocumentVersion,
    DocumentWrite, Entry, Epoch, Fence, FenceState, Incarnation, Limits, OnlyIf, Page, ReadError, Scan, Slot,
    Swap, TtlStorage, Vacant, WriteError,
    testing::{Model, ModelStorage, contract::StorageUnderTest},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

const LIMITS: DocumentLimits = DocumentLimits {
    max_id_bytes: 256,
    max_body_bytes: 1000,
    max_batch: 32,
    max_batch_bytes: 8000,
    max_page: 10,
};

type Standing = BTreeMap<DocumentId, Document>;

#[derive(Debug, Default)]
struct Documents {
    standing: Standing,
    deleted: BTreeSet<DocumentId>,
    before: Standing,
    writer: usize,
}

#[derive(Debug, Default)]
struct Data {
    counts: BTreeMap<Name, u64>,
    documents: BTreeMap<Name, Documents>,
    handles: usize,
}

/// The storage: every handle has the bug.
pub(super) struct Planted {
    bug: Bug,
    records: Arc<Model<Name>>,
    data: Arc<Mutex<Data>>,
    /// Writes are carried out one after another.
    turns: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Handle {
    bug: Bug,
    number: usize,
    records: Arc<ModelStorage<Name>>,
    data: Arc<Mutex<Data>>,
    turns: Arc<tokio::sync::Mutex<()>>,
    closed: AtomicBool,
    /// The index at which the page after a document begins.
    positions: Mutex<HashMap<DocumentId, usize>>,
}

impl Planted {
    pub(super) fn new(bug: Bug) -> Self {
        Self { bug, records: Model::new(), data: Arc::default(), turns: Arc::default() }
    }
}

#[async_trait]
impl StorageUnderTest for Planted {
    type Key = Name;

    async fn open(&self) -> Arc<dyn TtlStorage<Name>> {
        let number = {
            let mut data = self.data.lock().unwrap();
            data.handles += 1;
            data.handles
        };
        let (data, turns) = (Arc::clone(&self.data), Arc::clone(&self.turns));
        let (bug, records, closed) = (self.bug, self.records.open(), AtomicBool::new(false));
        Arc::new(Handle { bug, number, records, data, turns, closed, positions: Mutex::default() })
    }

    fn key(&self, name: &[u8]) -> Name {
        Name(name.to_vec())
    }
}

impl Handle {
    fn has(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap()
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Waits for the turn of this write. Other writes may come first.
    async fn turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        tokio::task::yield_now().await;
        if self.has(Bug::ChecksThenWrites) { None } else { Some(self.turns.lock().await) }
    }

    fn count_key(&self, key: &Name) -> Name {
        if self.has(Bug::CountIsShared) { Name(Vec::new()) } else { key.clone() }
    }

    fn last(&self, key: &Name) -> u64 {
        self.data().counts.get(&self.count_key(key)).copied().unwrap_or_default()
    }

    fn set_last(&self, key: &Name, last: u64) {
        self.data().counts.insert(self.count_key(key), last);
    }

    /// Where the documents of a key are kept, and the prefix of their ids there.
    fn place(&self, key: &Name) -> (Name, Vec<u8>) {
        if self.has(Bug::KeyRunsIntoId) { (Name(Vec::new()), key.0.clone()) } else { (key.clone(), vec![]) }
    }

    /// The id as the storage keeps it.
    fn stored(&self, key: &Name, id: &DocumentId) -> DocumentId {
        let bytes = id.as_bytes();
        let mangled = match self.bug {
            Bug::IdEndsAtZero => bytes.split(|byte| *byte == 0).next().unwrap_or_default(),
            Bug::IdCut => &bytes[..bytes.len().min(LIMITS.max_id_bytes - 1)],
            _ => bytes,
        };
        let whole = [&self.place(key).1, mangled].concat();
        DocumentId::new(whole).unwrap_or_else(|_| id.clone())
    }

    fn mangled(&self, body: &Bytes) -> Bytes {
        match self.bug {
            Bug::BodyEndsAtZero => body.split(|byte| *byte == 0).next().unwrap_or_default().to_vec().into(),
            Bug::BodyCut => body.slice(..body.len().min(LIMITS.max_body_bytes - 1)),
            _ => body.clone(),
        }
    }

    fn admits(&self, slot: &Slot, last: u64, fence: &Fence) -> bool {
        let entry = slot.entry();
        let is_of = entry.is_some_and(|entry| entry.is_of(fence.incarnation, fence.epoch));
        let of_record = match self.bug {
            Bug::RecordIgnored => true,
            Bug::EpochIgnored => entry.is_some_and(|entry| entry.incarnation() == fence.incarnation),
            Bug::IncarnationIgnored => entry.is_some_and(|entry| entry.epoch == fence.epoch),
            Bug::FenceOfFirstVersionOnly => is_of && entry.is_some_and(|entry| entry.version.write == 0),
            Bug::FenceOutlivesRelease => {
                is_of || *slot == Slot::Vacant(Vacant { last_epoch: Some(fence.epoch) })
            }
            _ => is_of,
        };
        let after = fence.after.get();
        let in_turn = match self.bug {
            Bug::AfterIgnored => true,
            Bug::AfterMayBeOlder => after <= last,
            Bug::AfterMayBeNewer => after >= last,
            _ => after == last,
        };
        of_record && in_turn
    }

    /// Returns the first write whose condition does not hold.
    fn first_that_fails(&self, key: &Name, batch: &[DocumentWrite]) -> Option<usize> {
        let mut data = self.data();
        let documents = data.documents.entry(self.place(key).0).or_default();
        batch.iter().enumerate().position(|(place, write)| {
            let id = self.stored(key, write.id());
            let version = documents.standing.get(&id).map(|document| document.version);
            let only_if = write.only_if();
            let holds = match (self.bug, write) {
                (Bug::PutConditionIgnored, DocumentWrite::Put { .. })
                | (Bug::DeleteConditionIgnored, DocumentWrite::Delete { .. }) => true,
                (Bug::LastConditionIgnored, _) if place + 1 == batch.len() => true,
                (Bug::VersionOfAbsentIsNone, _) if only_if == OnlyIf::Version(DocumentVersion::NONE) => {
                    version.is_none()
                }
                (Bug::AbsentIsNeverPut, _) if only_if == OnlyIf::Absent => {
                    version.is_none() && !documents.deleted.contains(&id)
                }
                _ => only_if.holds(version),
            };
            !holds
        })
    }

    fn apply(&self, key: &Name, number: u64, writes: &[DocumentWrite]) {
        let mut data = self.data();
        let documents = data.documents.entry(self.place(key).0).or_default();
        for write in writes {
            let id = self.stored(key, write.id());
            match write {
                DocumentWrite::Put { body, .. } if body.is_empty() && self.has(Bug::BodyOfNothingIsNone) => {
                    documents.standing.remove(&id);
                }
                DocumentWrite::Put { body, .. } => {
                    let before = documents.standing.get(&id).map(|document| document.version);
                    let version = match (self.bug, before) {
                        (Bug::VersionStays, Some(before)) => before,
                        (Bug::VersionOfDocument, before) => before.unwrap_or_default().next(),
                        _ => DocumentVersion::from_stored(number),
                    };
                    documents.deleted.remove(&id);
                    let document = Document { id: id.clone(), version, body: self.mangled(body) };
                    documents.standing.insert(id, document);
                }
                DocumentWrite::Delete { .. } => {
                    documents.standing.remove(&id);
                    documents.deleted.insert(id);
                }
            }
        }
    }

    /// Keeps the state that other handles see until the next batch.
    fn keep_what_stood(&self, key: &Name) {
        let mut data = self.data();
        let documents = data.documents.entry(self.place(key).0).or_default();
        (documents.before, documents.writer) = (documents.standing.clone(), self.number);
    }

    fn shown(&self, key: &Name) -> Standing {
        let (place, begin) = self.place(key);
        let data = self.data();
        let Some(documents) = data.documents.get(&place) else { return Standing::new() };
        let stale = self.has(Bug::ReadIsStale) && documents.writer != self.number;
        let mut shown = if stale { documents.before.clone() } else { documents.standing.clone() };
        if self.has(Bug::ScanShowsDeleted) {
            let version = DocumentVersion::NONE;
            let deleted = documents.deleted.iter();
            shown.extend(
                deleted.map(|id| (id.clone(), Document { id: id.clone(), version, body: Bytes::new() })),
            );
        }
        let own = |(id, document): (DocumentId, Document)| {
            let id = DocumentId::new(id.as_bytes().strip_prefix(&*begin)?.to_vec()).ok()?;
            Some((id.clone(), Document { id, ..document }))
        };
        shown.into_iter().filter_map(own).collect()
    }

    fn takes(&self, scan: &Scan, id: &DocumentId) -> bool {
        match self.bug {
            Bug::ScanToPrefixAndFf if !scan.prefix.is_empty() => {
                scan.takes(id) && id.as_bytes() < &*[&scan.prefix[..], &[0xff]].concat()
            }
            Bug::ScanFromAfter => {
                id.as_bytes().starts_with(&scan.prefix) && scan.after.as_ref().is_none_or(|after| id >= after)
            }
            Bug::ScanByPosition => id.as_bytes().starts_with(&scan.prefix),
            _ => scan.takes(id),
        }
    }

    async fn renewed_beside(&self, key: &Name, slot: &Slot) -> Result<(), WriteError> {
        if let Some(held) = slot.entry().filter(|_| self.has(Bug::BatchRenews)) {
            self.records.compare_and_swap(key, held, &held.renewed(held.version.next())).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl DocumentStorage<Name> for Handle {
    fn document_limits(&self) -> DocumentLimits {
        LIMITS
    }

    async fn write_documents(
        &self,
        key: &Name,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError> {
        if self.is_closed() {
            return Err(WriteError::Fatal("closed".into()));
        }
        if !self.has(Bug::LimitsIgnored) {
            LIMITS.check(batch).map_err(|beyond| WriteError::Fatal(beyond.into()))?;
        }
        if self.has(Bug::LimitsAreLess) && batch.len() == LIMITS.max_batch {
            return Err(WriteError::Fatal("the limit is one less".into()));
        }
        let _turn = self.turn().await;
        let slot = self.records.get(key).await.map_err(|error| WriteError::NotApplied(error.into()))?;
        let last = self.last(key);
        let admitted = self.admits(&slot, last, fence);
        let fails = self.first_that_fails(key, batch);
        if self.has(Bug::ChecksThenWrites) {
            tokio::task::yield_now().await;
        }
        if !admitted || fails.is_some() {
            if self.has(Bug::RefusedCounts) {
                self.set_last(key, last + 1);
            }
            if admitted && self.has(Bug::HalfApplied) {
                self.apply(key, last + 1, &batch[..fails.unwrap_or_default()]);
            }
            return Ok(if self.has(Bug::SaysWritten) {
                BatchOutcome::Written
            } else {
                BatchOutcome::Refused
            });
        }
        if self.has(Bug::NothingIsWritten) {
            return Ok(BatchOutcome::Written);
        }
        let in_any_turn = [Bug::AfterIgnored, Bug::AfterMayBeOlder, Bug::AfterMayBeNewer].contains(&self.bug);
        let number = if in_any_turn { last + 1 } else { fence.after.next().get() };
        self.keep_what_stood(key);
        let mut left = batch;
        if self.has(Bug::WritesInTwoSteps) && !batch.is_empty() {
            self.set_last(key, number);
            self.apply(key, number, &batch[..1]);
            tokio::task::yield_now().await;
            left = &batch[1..];
        }
        self.apply(key, number, left);
        if !(batch.is_empty() && self.has(Bug::EmptyDoesNotCount)) {
            self.set_last(key, number);
        }
        self.renewed_beside(key, &slot).await?;
        Ok(BatchOutcome::Written)
    }

    async fn fence_state(&self, key: &Name) -> Result<FenceState, ReadError> {
        if self.is_closed() {
            return Err(ReadError::Fatal("closed".into()));
        }
        let last = DocumentVersion::from_stored(self.last(key));
        Ok(FenceState { slot: self.records.get(key).await?, last })
    }

    async fn document(&self, key: &Name, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        if self.is_closed() {
            return Err(ReadError::Fatal("closed".into()));
        }
        if !self.has(Bug::LimitsIgnored) {
            LIMITS.check_id(id).map_err(|beyond| ReadError::Fatal(beyond.into()))?;
        }
        let stored = self.stored(&Name(Vec::new()), id);
        let found = self.shown(key).remove(&stored).filter(|_| !self.has(Bug::ScanShowsDeleted));
        Ok(found.map(|document| Document { id: id.clone(), ..document }))
    }

    async fn scan_documents(&self, key: &Name, scan: &Scan) -> Result<Page, ReadError> {
        if self.is_closed() {
            return Err(ReadError::Fatal("closed".into()));
        }
        let mut range: Vec<_> = self.shown(key).into_values().collect();
        range.retain(|document| self.takes(scan, &document.id));
        let mut positions = self.positions.lock().unwrap();
        let mut from = 0;
        if let Some(after) = &scan.after {
            match self.bug {
                Bug::ScanByPosition => from = positions.get(after).copied().unwrap_or_default(),
                Bug::ScanSkipsBetweenPages => from = 1,
                _ => {}
            }
        }
        let to = from.saturating_add(scan.limit.clamp(1, LIMITS.max_page)).min(range.len());
        let more = to < range.len() && !self.has(Bug::ScanEndsWithPage);
        let mut documents = range.get(from..to).unwrap_or_default().to_vec();
        let next = documents.last().filter(|_| more).map(|last| last.id.clone());
        if let Some(next) = &next {
            positions.insert(next.clone(), to);
        }
        if self.has(Bug::ScanUnsorted) {
            documents.reverse();
        }
        Ok(Page { documents, next })
    }
}

#[async_trait]
impl TtlStorage<Name> for Handle {
    fn limits(&self) -> Limits {
        self.records.limits()
    }

    async fn insert_if_not_exist(
        &self,
        key: &Name,
        vacant: Vacant,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        let _turn = self.turn().await;
        self.records.insert_if_not_exist(key, vacant, entry).await
    }

    async fn take_over(&self, key: &Name, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError> {
        let _turn = self.turn().await;
        let claim = self.records.take_over(key, observed, entry).await?;
        if claim == Claim::Claimed && self.has(Bug::CountStartsAnewAtTakeOver) {
            self.set_last(key, 0);
        }
        Ok(claim)
    }

    async fn compare_and_swap(&self, key: &Name, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let _turn = self.turn().await;
        let swap = self.records.compare_and_swap(key, held, entry).await?;
        if swap == Swap::Swapped && self.has(Bug::RenewalCounts) {
            self.set_last(key, self.last(key) + 1);
        }
        Ok(swap)
    }

    async fn compare_and_delete(
        &self,
        key: &Name,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let _turn = self.turn().await;
        let delete = self.records.compare_and_delete(key, incarnation, epoch).await?;
        match self.bug {
            Bug::CountStartsAnewAtRelease if delete == Delete::Deleted => self.set_last(key, 0),
            Bug::ReleaseDeletes if delete == Delete::Deleted => {
                self.data().documents.remove(key);
            }
            _ => {}
        }
        Ok(delete)
    }

    async fn get(&self, key: &Name) -> Result<Slot, ReadError> {
        self.records.get(key).await
    }

    async fn scan(&self, keys: &[Name]) -> Result<Vec<Slot>, ReadError> {
        self.records.scan(keys).await
    }

    fn documents(&self) -> Option<&dyn DocumentStorage<Name>> {
        Some(self)
    }

    async fn close(&self) {
        match self.bug {
            Bug::CloseDoesNothing => return,
            Bug::CloseForgets => *self.data() = Data::default(),
            _ => {}
        }
        self.closed.store(true, Ordering::SeqCst);
        self.records.close().await;
    }
}
