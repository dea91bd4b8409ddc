//! The contract as plainly as it can be written: a map from keys to slots. What a real storage is compared with, and
//! what the mock and the planted bugs of the suite's own tests stand on.

use crate::{
    Claim, Delete, Entry, Epoch, Incarnation, Key, Limits, ReadError, Slot, Swap, Ttl, TtlStorage, Vacant,
    WriteError,
};
use async_trait::async_trait;
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
    slots: Mutex<BTreeMap<K, Slot>>,
}

impl<K: Key> Model<K> {
    /// No slot was ever led.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { slots: Mutex::default() })
    }

    /// A handle of its own, as another process would have.
    pub fn open(self: &Arc<Self>) -> Arc<ModelStorage<K>> {
        Arc::new(ModelStorage { model: Arc::clone(self), closed: AtomicBool::new(false) })
    }

    /// Every change is one assignment, so poison carries no information here.
    fn slots(&self) -> MutexGuard<'_, BTreeMap<K, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle on a [`Model`]. It proves no ages: observers of a model wait.
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
    /// Replaces the slot by `next` if it is as `expected` says; else returns it.
    fn replace(
        &self,
        key: &K,
        expected: impl Fn(&Slot) -> bool,
        next: Slot,
    ) -> Result<Result<(), Slot>, WriteError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(WriteError::Fatal(Closed.into()));
        }
        let mut slots = self.model.slots();
        let slot = slots.entry(key.clone()).or_insert(Slot::Vacant(Vacant::default()));
        if !expected(slot) {
            return Ok(Err(slot.clone()));
        }
        *slot = next;
        Ok(Ok(()))
    }

    fn read(&self, keys: &[K]) -> Result<Vec<Slot>, ReadError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(ReadError::Fatal(Closed.into()));
        }
        let slots = self.model.slots();
        let vacant = Slot::Vacant(Vacant::default());
        Ok(keys.iter().map(|key| slots.get(key).unwrap_or(&vacant).clone()).collect())
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

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}
