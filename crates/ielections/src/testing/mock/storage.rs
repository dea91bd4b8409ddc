//! The storage behind the misbehaving network.

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

/// A storage whose calls fail, hang, are delayed, lost or reordered, as planned or by chance.
///
/// One of these plays the network of one process, or of all: several may stand before one storage. A write
/// that is under way belongs to the network and no longer to its caller: it lands although the caller has
/// gone, on the next call after its time has come, on [`deliver_due`](Self::deliver_due) or on
/// [`land_late`](Self::land_late).
///
/// The storage behind it must answer without waiting (a [`Model`](crate::testing::Model), a driver in
/// memory): deliveries wait for it in the name of whoever makes them.
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

/// What goes wrong, and when.
impl<K: Key> FaultyStorage<K> {
    /// A network without faults before `storage`; delays are counted on `clock`.
    pub fn new(storage: Arc<dyn TtlStorage<K>>, clock: Arc<dyn Clock>) -> Self {
        Self { storage, clock, state: Mutex::default() }
    }

    /// `fault` strikes the next call of `verb` that has nothing planned yet.
    pub fn fail_next(&self, verb: Verb, fault: Fault) {
        self.state().plan.on_next(verb, Some(fault));
    }

    /// The next call of `verb` that has nothing planned yet goes well.
    pub fn pass_next(&self, verb: Verb) {
        self.state().plan.on_next(verb, None);
    }

    /// `fault` strikes the call with this number, whatever its verb. Calls are counted from 1.
    pub fn fail_call(&self, number: u64, fault: Fault) {
        self.state().plan.on_call(number, fault);
    }

    /// `fault` strikes every call of `verb` for which nothing else is planned.
    pub fn fail_always(&self, verb: Verb, fault: Fault) {
        self.state().plan.always(verb, fault);
    }

    /// Chance strikes every call for which nothing else is planned. The same seed and the same calls: the
    /// same faults.
    pub fn fail_at_random(&self, odds: Odds, seed: u64) {
        self.state().plan.at_random(odds, seed);
    }

    /// Forgets all that was planned, chance included. What is under way stays so.
    pub fn heal(&self) {
        self.state().plan.heal();
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.state().plan.calls()
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.state().counts.clone()
    }
}

/// What is under way.
impl<K: Key> FaultyStorage<K> {
    /// How many calls are under way: late, held back, slow on their way out, or hanging.
    pub fn under_way(&self) -> usize {
        self.state().network.len()
    }

    /// When the next of them arrives; `None` if none does by itself.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.state().network.next_arrival()
    }

    /// Lands what has arrived by now, in the order of arrival.
    pub async fn deliver_due(&self) {
        self.land(self.clock.now()).await;
    }

    /// Lands all that is under way, and lets go what hangs.
    pub async fn land_late(&self) {
        self.land(Instant::NEVER).await;
    }

    /// Loses all that is under way, for good. Callers that still wait get `Unknown`, or `Unavailable`.
    pub fn lose_all(&self) {
        // Dropped outside the lock: a sender's drop wakes its caller.
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

    /// State changes are single steps, so poison carries no information here.
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
