//! [`FaultyStorage`]: its settings and its verbs.

use super::{
    Counts, Fault, Odds, Verb,
    network::{Landing, Network, Parcel},
    plan::Plan,
};
use crate::{
    Claim, Delete, DocumentStorage, Entry, Epoch, Incarnation, Key, Limits, ReadError, Slot, Swap,
    TtlStorage, Vacant, WriteError,
};
use async_trait::async_trait;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vvm_clock::{Clock, Instant};

/// A storage whose calls fail, hang, are delayed, lost or reordered, as planned or at random.
///
/// It simulates the network of one process or of all: several may stand before one storage. Dropping the
/// caller does not cancel a write in flight. It arrives with the next call after its time has come, with
/// [`deliver_due`](Self::deliver_due) or with [`land_late`](Self::land_late).
///
/// The storage behind it must answer without waiting, as a [`Model`](crate::testing::Model) or a driver in
/// memory does: any call of this one may have to wait for it.
#[derive(Debug)]
pub struct FaultyStorage<K> {
    pub(super) storage: Arc<dyn TtlStorage<K>>,
    pub(super) clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) plan: Plan,
    pub(super) network: Network,
    pub(super) counts: Counts,
}

/// Planning faults.
impl<K: Key> FaultyStorage<K> {
    /// A network without faults before `storage`. Delays are measured on `clock`.
    pub fn new(storage: Arc<dyn TtlStorage<K>>, clock: Arc<dyn Clock>) -> Self {
        Self { storage, clock, state: Mutex::default() }
    }

    /// Plans `fault` for the next call of `verb` that has no plan yet.
    pub fn fail_next(&self, verb: Verb, fault: Fault) {
        self.state().plan.on_next(verb, Some(fault));
    }

    /// Plans no fault for the next call of `verb` that has no plan yet.
    pub fn pass_next(&self, verb: Verb) {
        self.state().plan.on_next(verb, None);
    }

    /// Plans `fault` for the call with this number, of any verb. Calls are counted from 1.
    pub fn fail_call(&self, number: u64, fault: Fault) {
        self.state().plan.on_call(number, fault);
    }

    /// Plans `fault` for every call of `verb` without another plan.
    pub fn fail_always(&self, verb: Verb, fault: Fault) {
        self.state().plan.always(verb, fault);
    }

    /// Draws a fault for every call without another plan. The same seed and calls give the same faults.
    pub fn fail_at_random(&self, odds: Odds, seed: u64) {
        self.state().plan.at_random(odds, seed);
    }

    /// Removes all plans, also random faults. Calls in flight stay in flight.
    pub fn heal(&self) {
        self.state().plan.heal();
    }

    /// The number of calls so far.
    pub fn calls(&self) -> u64 {
        self.state().plan.calls()
    }

    /// The effects so far.
    pub fn counts(&self) -> Counts {
        self.state().counts.clone()
    }
}

/// Calls in flight.
impl<K: Key> FaultyStorage<K> {
    /// The number of calls in flight: late, held back, with a slow request, or hanging.
    pub fn under_way(&self) -> usize {
        self.state().network.len()
    }

    /// When the next call arrives; `None` if none does by itself.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.state().network.next_arrival()
    }

    /// Carries out the calls that have arrived by now, in the order of arrival.
    pub async fn deliver_due(&self) {
        self.land(self.clock.now()).await;
    }

    /// Carries out all calls in flight, also those that hang.
    pub async fn land_late(&self) {
        self.land(Instant::NEVER).await;
    }

    /// Loses all calls in flight. Callers that still wait get `Unknown`, or `Unavailable`.
    pub fn lose_all(&self) {
        // Dropped outside the lock, because dropping a sender wakes its caller.
        let lost = self.state().network.take();
        drop(lost);
    }

    async fn land(&self, until: Instant) {
        while let Some(parcel) = self.arrived(until) {
            let landing = parcel.await;
            let counts = &mut self.state().counts;
            match landing {
                Landing::InTime => {}
                Landing::AppliedLate => counts.landed_late += 1,
                Landing::RefusedLate => counts.refused_late += 1,
            }
        }
    }

    fn arrived(&self, until: Instant) -> Option<Parcel> {
        self.state().network.arrived(until)
    }

    /// A poisoned lock is taken: every change is a single step.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl<K: Key> TtlStorage<K> for FaultyStorage<K> {
    fn limits(&self) -> Limits {
        self.storage.limits()
    }

    async fn insert_if_not_exist(&self, key: &K, vacant: Vacant, entry: &Entry) -> Result<Claim, WriteError> {
        let (storage, key, entry) = (Arc::clone(&self.storage), key.clone(), entry.clone());
        self.write(
            Verb::InsertIfNotExist,
            async move { storage.insert_if_not_exist(&key, vacant, &entry).await },
        )
        .await
    }

    async fn take_over(&self, key: &K, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError> {
        let (storage, key) = (Arc::clone(&self.storage), key.clone());
        let (observed, entry) = (observed.clone(), entry.clone());
        self.write(Verb::TakeOver, async move { storage.take_over(&key, &observed, &entry).await }).await
    }

    async fn compare_and_swap(&self, key: &K, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let (storage, key) = (Arc::clone(&self.storage), key.clone());
        let (held, entry) = (held.clone(), entry.clone());
        self.write(Verb::CompareAndSwap, async move { storage.compare_and_swap(&key, &held, &entry).await })
            .await
    }

    async fn compare_and_delete(
        &self,
        key: &K,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let (storage, key) = (Arc::clone(&self.storage), key.clone());
        self.write(Verb::CompareAndDelete, async move {
            storage.compare_and_delete(&key, incarnation, epoch).await
        })
        .await
    }

    async fn get(&self, key: &K) -> Result<Slot, ReadError> {
        self.read(Verb::Get, self.storage.get(key)).await
    }

    async fn scan(&self, keys: &[K]) -> Result<Vec<Slot>, ReadError> {
        self.read(Verb::Scan, self.storage.scan(keys)).await
    }

    fn documents(&self) -> Option<&dyn DocumentStorage<K>> {
        self.storage.documents().map(|_| self as _)
    }

    async fn close(&self) {
        self.storage.close().await;
    }
}
