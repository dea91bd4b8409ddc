use crate::{
    BatchOutcome, Claim, Delete, Document, DocumentId, DocumentLimits, DocumentStorage, DocumentVersion,
    DocumentWrite, Entry, Epoch, Fence, FenceState, Incarnation, Key, Limits, Page, ReadError, Scan, Slot,
    Swap, Ttl, TtlStorage, Vacant, WriteError,
};
use async_trait::async_trait;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The data of a model storage, shared by its handles.
#[derive(Debug)]
pub struct Model<K> {
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    slots: BTreeMap<K, Slot>,
    documents: BTreeMap<K, Documents>,
}

impl<K: Key> Model<K> {
    /// A storage in which no slot was ever led.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { slots: BTreeMap::new(), documents: BTreeMap::new() }) })
    }

    /// Opens another handle, as another process would.
    pub fn open(self: &Arc<Self>) -> Arc<ModelStorage<K>> {
        Arc::new(ModelStorage { model: Arc::clone(self), closed: AtomicBool::new(false) })
    }

    /// A poisoned lock is taken: no change panics before it is complete.
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Key> State<K> {
    fn slot(&self, key: &K) -> Slot {
        self.slots.get(key).cloned().unwrap_or(Slot::Vacant(Vacant::default()))
    }
}

/// Longer than [`Ttl::MIN`], so that a test can have a TTL that only the storage refuses.
const MIN_TTL: Duration = Ttl::MIN.saturating_add(Duration::from_millis(1));

/// A handle on a [`Model`]. It proves no ages.
#[derive(Debug)]
pub struct ModelStorage<K> {
    model: Arc<Model<K>>,
    closed: AtomicBool,
}

#[derive(Debug, thiserror::Error)]
#[error("this handle of the model is closed")]
struct Closed;

impl<K: Key> ModelStorage<K> {
    /// Replaces the slot by `next` if it meets `expected`; else returns it.
    fn replace(
        &self,
        key: &K,
        expected: impl Fn(&Slot) -> bool,
        next: Slot,
    ) -> Result<Result<(), Slot>, WriteError> {
        let mut state = self.for_write()?;
        let slot = state.slot(key);
        if !expected(&slot) {
            return Ok(Err(slot));
        }
        state.slots.insert(key.clone(), next);
        Ok(Ok(()))
    }

    fn read(&self, keys: &[K]) -> Result<Vec<Slot>, ReadError> {
        let state = self.for_read()?;
        let slots = keys.iter().map(|key| state.slot(key));
        Ok(slots.collect())
    }

    fn for_write(&self) -> Result<MutexGuard<'_, State<K>>, WriteError> {
        self.open().map_err(|closed| WriteError::Fatal(closed.into()))
    }

    fn for_read(&self) -> Result<MutexGuard<'_, State<K>>, ReadError> {
        self.open().map_err(|closed| ReadError::Fatal(closed.into()))
    }

    fn open(&self) -> Result<MutexGuard<'_, State<K>>, Closed> {
        if self.closed.load(Ordering::Acquire) { Err(Closed) } else { Ok(self.model.state()) }
    }
}

fn held(entry: &Entry) -> Slot {
    let entry = entry.clone();
    Slot::Held { entry, proven_age: None }
}

fn claim(outcome: Result<(), Slot>) -> Claim {
    outcome.map_or_else(Claim::Refused, |()| Claim::Claimed)
}

fn holds(slot: &Slot, expected: &Entry) -> bool {
    slot.entry().is_some_and(|entry| entry.version == expected.version && entry.epoch == expected.epoch)
}

#[async_trait]
impl<K: Key> TtlStorage<K> for ModelStorage<K> {
    fn limits(&self) -> Limits {
        Limits { min_ttl: MIN_TTL, max_key_bytes: usize::MAX, max_value_bytes: usize::MAX, scan_batch: 1024 }
    }

    async fn insert_if_not_exist(&self, key: &K, vacant: Vacant, entry: &Entry) -> Result<Claim, WriteError> {
        self.replace(key, |slot| *slot == Slot::Vacant(vacant), held(entry)).map(claim)
    }

    async fn take_over(&self, key: &K, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError> {
        self.replace(key, |slot| holds(slot, observed), held(entry)).map(claim)
    }

    async fn compare_and_swap(&self, key: &K, expected: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let outcome = self.replace(key, |slot| holds(slot, expected), held(entry))?;
        Ok(outcome.map_or_else(Swap::Mismatch, |()| Swap::Swapped))
    }

    async fn compare_and_delete(
        &self,
        key: &K,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let ours = |slot: &Slot| {
            slot.entry().is_some_and(|entry| entry.incarnation() == incarnation && entry.epoch == epoch)
        };
        let outcome = self.replace(key, ours, Slot::Vacant(Vacant { last_epoch: Some(epoch) }))?;
        Ok(outcome.map_or_else(Delete::Mismatch, |()| Delete::Deleted))
    }

    async fn get(&self, key: &K) -> Result<Slot, ReadError> {
        let slots = self.read(std::slice::from_ref(key))?;
        Ok(slots.into_iter().next().unwrap_or(Slot::Vacant(Vacant::default())))
    }

    async fn scan(&self, keys: &[K]) -> Result<Vec<Slot>, ReadError> {
        self.read(keys)
    }

    fn documents(&self) -> Option<&dyn DocumentStorage<K>> {
        Some(self)
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

/// So small that a test reaches every limit quickly.
const LIMITS: DocumentLimits = DocumentLimits {
    max_id_bytes: 256,
    max_body_bytes: 1000,
    max_batch: 32,
    max_batch_bytes: 8000,
    max_page: 10,
};

#[derive(Clone, Debug, Default)]
struct Documents {
    last: DocumentVersion,
    standing: BTreeMap<DocumentId, Document>,
}

impl<K: Key> State<K> {
    fn fence_state(&self, key: &K) -> FenceState {
        let last = self.documents.get(key).map_or(DocumentVersion::NONE, |documents| documents.last);
        FenceState { slot: self.slot(key), last }
    }

    fn document(&self, key: &K, id: &DocumentId) -> Option<&Document> {
        self.documents.get(key)?.standing.get(id)
    }
}

impl Documents {
    fn write(&mut self, version: DocumentVersion, write: &DocumentWrite) {
        match write {
            DocumentWrite::Put { id, body, .. } => {
                let document = Document { id: id.clone(), version, body: body.clone() };
                self.standing.insert(id.clone(), document);
            }
            DocumentWrite::Delete { id, .. } => {
                self.standing.remove(id);
            }
        }
    }
}

#[async_trait]
impl<K: Key> DocumentStorage<K> for ModelStorage<K> {
    fn document_limits(&self) -> DocumentLimits {
        LIMITS
    }

    async fn write_documents(
        &self,
        key: &K,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError> {
        let mut state = self.for_write()?;
        LIMITS.check(batch).map_err(|beyond| WriteError::Fatal(beyond.into()))?;
        let stands = state.fence_state(key);
        let version = |id: &DocumentId| state.document(key, id).map(|document| document.version);
        let holds = |write: &DocumentWrite| write.only_if().holds(version(write.id()));
        if !stands.admits(fence) || !batch.iter().all(holds) {
            return Ok(BatchOutcome::Refused);
        }
        let documents = state.documents.entry(key.clone()).or_default();
        documents.last = fence.after.next();
        batch.iter().for_each(|write| documents.write(fence.after.next(), write));
        Ok(BatchOutcome::Written)
    }

    async fn fence_state(&self, key: &K) -> Result<FenceState, ReadError> {
        Ok(self.for_read()?.fence_state(key))
    }

    async fn document(&self, key: &K, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        let state = self.for_read()?;
        LIMITS.check_id(id).map_err(|beyond| ReadError::Fatal(beyond.into()))?;
        Ok(state.document(key, id).cloned())
    }

    async fn scan_documents(&self, key: &K, scan: &Scan) -> Result<Page, ReadError> {
        let state = self.for_read()?;
        let standing = state.documents.get(key).into_iter().flat_map(|documents| documents.standing.values());
        let takes = |document: &&Document| scan.takes(&document.id);
        let mut left = standing.filter(takes).cloned();
        let documents: Vec<_> = left.by_ref().take(scan.limit.clamp(1, LIMITS.max_page)).collect();
        let next = left.next().and_then(|_| Some(documents.last()?.id.clone()));
        Ok(Page { documents, next })
    }
}
