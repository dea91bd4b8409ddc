//! [`Model`]: the simplest storage that keeps the contract: a map from keys to slots, and one to documents.

mod documents;

use crate::{
    Claim, Delete, DocumentStorage, Entry, Epoch, Incarnation, Key, Limits, ReadError, Slot, Swap, Ttl,
    TtlStorage, Vacant, WriteError,
};
use async_trait::async_trait;
use documents::Documents;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
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

/// A handle on a [`Model`]. It proves no ages.
#[derive(Debug)]
pub struct ModelStorage<K> {
    model: Arc<Model<K>>,
    closed: AtomicBool,
}

/// The handle was closed.
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
        let slot = state.slots.entry(key.clone()).or_insert(Slot::Vacant(Vacant::default()));
        if !expected(slot) {
            return Ok(Err(slot.clone()));
        }
        *slot = next;
        Ok(Ok(()))
    }

    fn read(&self, keys: &[K]) -> Result<Vec<Slot>, ReadError> {
        let state = self.for_read()?;
        Ok(keys.iter().map(|key| state.slot(key)).collect())
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
    Slot::Held { entry: entry.clone(), proven_age: None }
}

fn holds(slot: &Slot, expected: &Entry) -> bool {
    slot.entry().is_some_and(|entry| entry.version == expected.version && entry.epoch == expected.epoch)
}

#[async_trait]
impl<K: Key> TtlStorage<K> for ModelStorage<K> {
    fn limits(&self) -> Limits {
        Limits { min_ttl: Ttl::MIN, max_key_bytes: usize::MAX, max_value_bytes: usize::MAX, scan_batch: 1024 }
    }

    async fn insert_if_not_exist(&self, key: &K, vacant: Vacant, entry: &Entry) -> Result<Claim, WriteError> {
        let outcome = self.replace(key, |slot| *slot == Slot::Vacant(vacant), held(entry))?;
        Ok(outcome.map_or_else(Claim::Refused, |()| Claim::Claimed))
    }

    async fn take_over(&self, key: &K, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError> {
        let outcome = self.replace(key, |slot| holds(slot, observed), held(entry))?;
        Ok(outcome.map_or_else(Claim::Refused, |()| Claim::Claimed))
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
