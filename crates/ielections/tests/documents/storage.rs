//! A partition with documents behind a network with faults. It records the applied batches and the calls.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;
use ielections::{
    BatchOutcome, Document, DocumentId, DocumentLimits, DocumentStorage, DocumentVersion, DocumentWrite,
    Entry, Fence, FenceState, Layer, Page, ReadError, Scan, Slot, Swap, TtlStorage, WriteError,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use vvm_clock::{Clock, Instant};

/// The fate of one call for documents.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Fate {
    Well,
    NotApplied,
    Fatal,
    Replaced,
    /// Never arrives; `Unknown`.
    LostRequest,
    /// Applied; `Unknown`.
    LostAnswer,
    /// `Unknown` at once, and arrives after this delay.
    Late(Duration),
    /// Arrives after this delay, and is answered then. Arrives also if its caller was dropped.
    Slow(Duration),
    /// Applied at once, answered after this delay.
    SlowAnswer(Duration),
    /// Never arrives, never answered.
    Hang,
    Panic,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Write(usize),
    FenceState,
    Document,
    Scan,
    Renewal,
}

#[derive(Default)]
struct State {
    last: DocumentVersion,
    documents: BTreeMap<DocumentId, (DocumentVersion, Bytes)>,
    landed: Vec<Vec<DocumentWrite>>,
    under_way: Vec<(Instant, Fence, Vec<DocumentWrite>)>,
    writes: VecDeque<Fate>,
    reads: VecDeque<Fate>,
    always: Option<Fate>,
    dice: Option<fastrand::Rng>,
    calls: Vec<(Call, Instant)>,
    /// When each write was in flight, from the call to the answer or the drop.
    spans: Vec<(Instant, Instant)>,
}

/// One write in flight.
struct InFlight<'storage>(&'storage Storage, Instant);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let now = self.0.clock.now();
        self.0.state().spans.push((self.1, now));
    }
}

pub(crate) struct Storage {
    records: Arc<dyn TtlStorage<u32>>,
    clock: Arc<dyn Clock>,
    limits: DocumentLimits,
    has_documents: bool,
    state: Mutex<State>,
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Storage")
    }
}

pub(crate) const LIMITS: DocumentLimits = DocumentLimits {
    max_id_bytes: 64,
    max_body_bytes: 1024,
    max_batch: 8,
    max_batch_bytes: 4096,
    max_page: 4,
};

impl Storage {
    pub(crate) fn new(records: Arc<dyn TtlStorage<u32>>, clock: Arc<dyn Clock>) -> Self {
        Self { records, clock, limits: LIMITS, has_documents: true, state: Mutex::default() }
    }

    pub(crate) fn without_documents(records: Arc<dyn TtlStorage<u32>>, clock: Arc<dyn Clock>) -> Self {
        Self { has_documents: false, ..Self::new(records, clock) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The fates of the next writes, in order.
    pub(crate) fn writes(&self, fates: impl IntoIterator<Item = Fate>) {
        self.state().writes.extend(fates);
    }

    /// The fates of the next reads (of the fence, of documents, of pages), in order.
    pub(crate) fn reads(&self, fates: impl IntoIterator<Item = Fate>) {
        self.state().reads.extend(fates);
    }

    /// The fate of every call without another plan; `None`: random, or no fault.
    pub(crate) fn always(&self, fate: Option<Fate>) {
        self.state().always = fate;
    }

    /// From now on fates are random.
    pub(crate) fn at_random(&self, seed: Option<u64>) {
        self.state().dice = seed.map(fastrand::Rng::with_seed);
    }

    /// Carries out all calls in flight.
    pub(crate) fn land_late(&self) {
        let under_way = std::mem::take(&mut self.state().under_way);
        for (_, fence, batch) in under_way {
            self.apply(&fence, &batch);
        }
    }

    pub(crate) fn landed(&self) -> Vec<Vec<DocumentWrite>> {
        self.state().landed.clone()
    }

    pub(crate) fn calls(&self) -> Vec<(Call, Instant)> {
        self.state().calls.clone()
    }

    pub(crate) fn spans(&self) -> Vec<(Instant, Instant)> {
        self.state().spans.clone()
    }

    pub(crate) fn count(&self, call: Call) -> usize {
        self.calls().iter().filter(|(called, _)| *called == call).count()
    }

    /// How many writes were sent.
    pub(crate) fn sent(&self) -> usize {
        self.calls().iter().filter(|(called, _)| matches!(called, Call::Write(_))).count()
    }

    pub(crate) fn body(&self, id: &DocumentId) -> Option<Bytes> {
        self.state().documents.get(id).map(|(_, body)| body.clone())
    }

    fn slot(&self) -> Slot {
        self.records.get(&super::KEY).now_or_never().expect("a model answers at once").unwrap()
    }

    fn apply(&self, fence: &Fence, batch: &[DocumentWrite]) -> BatchOutcome {
        let slot = self.slot();
        let mut state = self.state();
        let stands = FenceState { slot, last: state.last };
        let version = |id: &DocumentId| state.documents.get(id).map(|(version, _)| *version);
        if !stands.admits(fence) || !batch.iter().all(|write| write.only_if().holds(version(write.id()))) {
            return BatchOutcome::Refused;
        }
        state.last = fence.after.next();
        let last = state.last;
        for write in batch {
            match write {
                DocumentWrite::Put { id, body, .. } => {
                    state.documents.insert(id.clone(), (last, body.clone()));
                }
                DocumentWrite::Delete { id, .. } => drop(state.documents.remove(id)),
            }
        }
        state.landed.push(batch.to_vec());
        BatchOutcome::Written
    }

    /// Returns the fate of the call that begins now. Carries out calls that have arrived meanwhile first.
    fn strike(&self, call: Call) -> Fate {
        let now = self.clock.now();
        let due: Vec<_> = self.state().under_way.extract_if(.., |(at, _, _)| *at <= now).collect();
        for (_, fence, batch) in &due {
            self.apply(fence, batch);
        }
        let mut state = self.state();
        state.calls.push((call, now));
        let planned = match call {
            Call::Write(_) => state.writes.pop_front(),
            _ => state.reads.pop_front(),
        };
        let by_chance = state.dice.as_mut().map_or(Fate::Well, |dice| {
            let span = Duration::from_millis(dice.u64(0..4000));
            match dice.u8(0..100) {
                0..5 => Fate::NotApplied,
                5..12 => Fate::LostRequest,
                12..20 => Fate::LostAnswer,
                20..28 => Fate::Late(span),
                28..38 => Fate::Slow(span),
                38..45 => Fate::SlowAnswer(span),
                45..48 => Fate::Hang,
                _ => Fate::Well,
            }
        });
        planned.or(state.always).unwrap_or(by_chance)
    }

    async fn read<T>(&self, call: Call, read: impl FnOnce() -> T) -> Result<T, ReadError> {
        match self.strike(call) {
            Fate::Well => Ok(read()),
            Fate::Fatal => Err(ReadError::Fatal("injected".into())),
            Fate::Replaced => Err(ReadError::Replaced("injected".into())),
            Fate::Slow(span) => {
                self.clock.sleep(span).await;
                Ok(read())
            }
            Fate::SlowAnswer(span) => {
                let read = read();
                self.clock.sleep(span).await;
                Ok(read)
            }
            Fate::Hang => std::future::pending().await,
            Fate::Panic => panic!("injected"),
            Fate::NotApplied | Fate::LostRequest | Fate::LostAnswer | Fate::Late(_) => {
                Err(ReadError::Unavailable("injected".into()))
            }
        }
    }
}

#[async_trait]
impl DocumentStorage<u32> for Storage {
    fn document_limits(&self) -> DocumentLimits {
        self.limits
    }

    async fn write_documents(
        &self,
        _: &u32,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError> {
        self.limits.check(batch).expect("a batch within the limits");
        let unknown = || WriteError::Unknown("injected".into());
        let _at_storage = InFlight(self, self.clock.now());
        match self.strike(Call::Write(batch.len())) {
            Fate::Well => Ok(self.apply(fence, batch)),
            Fate::NotApplied => Err(WriteError::NotApplied("injected".into())),
            Fate::Fatal => Err(WriteError::Fatal("injected".into())),
            Fate::Replaced => Err(WriteError::Replaced("injected".into())),
            Fate::LostRequest => Err(unknown()),
            Fate::LostAnswer => {
                self.apply(fence, batch);
                Err(unknown())
            }
            Fate::Late(span) => {
                self.state().under_way.push((self.clock.now().after(span), *fence, batch.to_vec()));
                Err(unknown())
            }
            Fate::Slow(span) => {
                let arrives_at = self.clock.now().after(span);
                self.state().under_way.push((arrives_at, *fence, batch.to_vec()));
                self.clock.sleep_until(arrives_at).await;
                let mine = |(at, of, writes): &mut (Instant, Fence, Vec<DocumentWrite>)| {
                    (*at, *of, writes.as_slice()) == (arrives_at, *fence, batch)
                };
                let first = self.state().under_way.extract_if(.., mine).next();
                match first {
                    Some((_, fence, batch)) => Ok(self.apply(&fence, &batch)),
                    // Another call has carried it out meanwhile.
                    None => Err(unknown()),
                }
            }
            Fate::SlowAnswer(span) => {
                let outcome = self.apply(fence, batch);
                self.clock.sleep(span).await;
                Ok(outcome)
            }
            Fate::Hang => std::future::pending().await,
            Fate::Panic => panic!("injected"),
        }
    }

    async fn fence_state(&self, _: &u32) -> Result<FenceState, ReadError> {
        self.read(Call::FenceState, || FenceState { slot: self.slot(), last: self.state().last }).await
    }

    async fn document(&self, _: &u32, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.read(Call::Document, || {
            let found = self.state().documents.get(id).cloned();
            found.map(|(version, body)| Document { id: id.clone(), version, body })
        })
        .await
    }

    async fn scan_documents(&self, _: &u32, scan: &Scan) -> Result<Page, ReadError> {
        self.read(Call::Scan, || {
            let limit = scan.limit.clamp(1, self.limits.max_page);
            let state = self.state();
            let taken = state.documents.iter().filter(|(id, _)| scan.takes(id));
            let document = |(id, (version, body)): (&DocumentId, &(DocumentVersion, Bytes))| Document {
                id: id.clone(),
                version: *version,
                body: body.clone(),
            };
            let mut documents: Vec<_> = taken.take(limit + 1).map(document).collect();
            let more = documents.len() > limit;
            documents.truncate(limit);
            let next = documents.last().filter(|_| more).map(|document| document.id.clone());
            Page { documents, next }
        })
        .await
    }
}

#[async_trait]
impl Layer<u32> for Storage {
    fn beneath(&self) -> &dyn TtlStorage<u32> {
        &*self.records
    }

    async fn compare_and_swap(&self, key: &u32, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let now = self.clock.now();
        self.state().calls.push((Call::Renewal, now));
        self.records.compare_and_swap(key, held, entry).await
    }

    fn documents(&self) -> Option<&dyn DocumentStorage<u32>> {
        self.has_documents.then_some(self)
    }
}
