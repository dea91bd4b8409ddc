//! [`FaultyStorage`]: its settings and its verbs.

use super::{
    Fault, Verb,
    network::{Landing, Network, Parcel},
};
use crate::{
    BatchOutcome, Claim, Delete, Document, DocumentId, DocumentLimits, DocumentStorage, DocumentWrite, Entry,
    Epoch, Fence, FenceState, Incarnation, Key, Limits, Page, ReadError, Scan, Slot, Swap, TtlStorage,
    Vacant, WriteError,
};
use async_trait::async_trait;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
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

/// The probability of each fault, for every call. The rest up to 1 is the probability of no fault.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Odds {
    /// Probability of [`Fault::NotApplied`].
    pub not_applied: f64,
    /// Probability of [`Fault::Fatal`].
    pub fatal: f64,
    /// Probability of [`Fault::LostRequest`].
    pub lost_request: f64,
    /// Probability of [`Fault::LostAnswer`].
    pub lost_answer: f64,
    /// Probability of [`Fault::SlowRequest`].
    pub slow_request: f64,
    /// Probability of [`Fault::SlowAnswer`].
    pub slow_answer: f64,
    /// Probability of [`Fault::Late`].
    pub late: f64,
    /// Probability of [`Fault::HeldBack`].
    pub held_back: f64,
    /// Probability of [`Fault::Hang`].
    pub hang: f64,
    /// Slow and late calls take a random span below this one.
    pub longest_delay: Duration,
}

impl Odds {
    fn draw(&self, dice: &mut fastrand::Rng) -> Option<Fault> {
        // Always two draws, so that one call does not change the faults of the next.
        let mut chance = dice.f64();
        let delay = self.longest_delay.mul_f64(dice.f64());
        let faults = [
            (self.not_applied, Fault::NotApplied),
            (self.fatal, Fault::Fatal),
            (self.lost_request, Fault::LostRequest),
            (self.lost_answer, Fault::LostAnswer),
            (self.slow_request, Fault::SlowRequest(delay)),
            (self.slow_answer, Fault::SlowAnswer(delay)),
            (self.late, Fault::Late(delay)),
            (self.held_back, Fault::HeldBack),
            (self.hang, Fault::Hang),
        ];
        faults.into_iter().find_map(|(probability, fault)| {
            let strikes = chance < probability;
            chance -= probability;
            strikes.then_some(fault)
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    calls: u64,
    by_number: BTreeMap<u64, Fault>,
    next: BTreeMap<Verb, VecDeque<Option<Fault>>>,
    always: BTreeMap<Verb, Fault>,
    chance: Option<(Odds, fastrand::Rng)>,
}

impl Plan {
    /// Returns the fault of the call that begins now.
    pub(super) fn strike(&mut self, verb: Verb) -> Option<Fault> {
        self.calls += 1;
        // Drawn in any case: a planned fault must not change the random ones.
        let by_chance = self.chance.as_mut().and_then(|(odds, dice)| odds.draw(dice));
        if let Some(fault) = self.by_number.remove(&self.calls) {
            return Some(fault);
        }
        if let Some(planned) = self.next.get_mut(&verb).and_then(VecDeque::pop_front) {
            return planned;
        }
        self.always.get(&verb).copied().or(by_chance)
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    pub(super) fn on_call(&mut self, number: u64, fault: Fault) {
        self.by_number.insert(number, fault);
    }

    pub(super) fn on_next(&mut self, verb: Verb, fault: Option<Fault>) {
        self.next.entry(verb).or_default().push_back(fault);
    }

    pub(super) fn always(&mut self, verb: Verb, fault: Fault) {
        self.always.insert(verb, fault);
    }

    pub(super) fn at_random(&mut self, odds: Odds, seed: u64) {
        self.chance = Some((odds, fastrand::Rng::with_seed(seed)));
    }

    pub(super) fn heal(&mut self) {
        *self = Self { calls: self.calls, ..Self::default() };
    }
}

/// How often each effect happened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Calls, by verb.
    pub calls: BTreeMap<Verb, u64>,
    /// Calls failed with `NotApplied` or `Unavailable`.
    pub not_applied: u64,
    /// Calls failed with `Fatal` or `Replaced`.
    pub fatal: u64,
    /// Writes that failed with `Unknown` and were never applied, and reads that never arrived.
    pub lost_requests: u64,
    /// Writes that *were applied* and failed with `Unknown`, and reads whose answer was lost.
    pub lost_answers: u64,
    /// Calls whose request arrived late.
    pub slow_requests: u64,
    /// Calls whose answer arrived late.
    pub slow_answers: u64,
    /// Calls that hung.
    pub hung: u64,
    /// Writes applied after their caller got `Unknown` or stopped waiting.
    pub landed_late: u64,
    /// Writes refused after their caller got `Unknown` or stopped waiting.
    pub refused_late: u64,
    /// Records that a test replaced or deleted without their leader's knowledge.
    pub tampered: u64,
}

/// `FaultyStorage::documents` is `Some` only if the storage has documents, so this never panics.
fn of<K: Key>(storage: &dyn TtlStorage<K>) -> &dyn DocumentStorage<K> {
    storage.documents().expect("the storage has documents")
}

#[async_trait]
impl<K: Key> DocumentStorage<K> for FaultyStorage<K> {
    fn document_limits(&self) -> DocumentLimits {
        of(&*self.storage).document_limits()
    }

    async fn write_documents(
        &self,
        key: &K,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError> {
        let (storage, key, fence, batch) = (Arc::clone(&self.storage), key.clone(), *fence, batch.to_vec());
        self.write(
            Verb::WriteDocuments,
            async move { of(&*storage).write_documents(&key, &fence, &batch).await },
        )
        .await
    }

    async fn fence_state(&self, key: &K) -> Result<FenceState, ReadError> {
        self.read(Verb::FenceState, of(&*self.storage).fence_state(key)).await
    }

    async fn document(&self, key: &K, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.read(Verb::Document, of(&*self.storage).document(key, id)).await
    }

    async fn scan_documents(&self, key: &K, scan: &Scan) -> Result<Page, ReadError> {
        self.read(Verb::ScanDocuments, of(&*self.storage).scan_documents(key, scan)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thousand(odds: Odds, seed: u64) -> Vec<Option<Fault>> {
        let mut plan = Plan::default();
        plan.at_random(odds, seed);
        (0..1000).map(|_| plan.strike(Verb::Get)).collect()
    }

    #[test]
    fn random_faults_follow_odds_and_seed() {
        let odds = Odds { lost_answer: 0.25, hang: 0.25, ..Odds::default() };
        let struck = thousand(odds, 1);
        assert_eq!(struck, thousand(odds, 1));
        assert_ne!(struck, thousand(odds, 2));
        let count = |fault| struck.iter().filter(|&&one| one == fault).count();
        // Four standard deviations of a binomial distribution: 55 either way.
        assert!((195..305).contains(&count(Some(Fault::LostAnswer))));
        assert!((195..305).contains(&count(Some(Fault::Hang))));
        assert_eq!(count(None) + count(Some(Fault::LostAnswer)) + count(Some(Fault::Hang)), 1000);
    }

    #[test]
    fn random_delays_stay_below_the_longest_delay() {
        let longest_delay = Duration::from_secs(1);
        for fault in thousand(Odds { late: 1.0, longest_delay, ..Odds::default() }, 3) {
            assert!(matches!(fault, Some(Fault::Late(delay)) if delay < longest_delay), "{fault:?}");
        }
    }

    #[test]
    fn planned_fault_precedes_the_fault_for_every_call() {
        let mut plan = Plan::default();
        plan.always(Verb::Get, Fault::Fatal);
        plan.on_next(Verb::Get, None);
        plan.on_next(Verb::Get, Some(Fault::Hang));
        plan.on_call(2, Fault::LostRequest);
        let struck: Vec<_> = (0..4).map(|_| plan.strike(Verb::Get)).collect();
        assert_eq!(struck, [None, Some(Fault::LostRequest), Some(Fault::Hang), Some(Fault::Fatal)]);
        assert_eq!(plan.strike(Verb::Scan), None);
        plan.heal();
        assert_eq!(plan.strike(Verb::Get), None);
        assert_eq!(plan.calls(), 6);
    }
}
