//! [`Probe`]: a storage that records its calls, and lets a test act during one.

use async_trait::async_trait;
use ielections::{
    Claim, Delete, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, TtlStorage, Vacant, WriteError,
    testing::mock::Verb,
};
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use vvm_clock::{Clock, Instant};

/// An action of a test during a call.
type Act = Box<dyn Fn(Verb) + Send>;

pub(crate) struct Probe {
    storage: Arc<dyn TtlStorage<u32>>,
    clock: Arc<dyn Clock>,
    calls: Mutex<Vec<(Verb, Instant)>>,
    in_flight: AtomicUsize,
    most: AtomicUsize,
    /// Runs during every call.
    pub(crate) act: Mutex<Option<Act>>,
    pub(crate) min_ttl: Mutex<Option<Duration>>,
    /// Whether it says that hints follow releases.
    pub(crate) hints: AtomicBool,
}

/// One call in flight, until it is answered or dropped.
struct InFlight<'probe>(&'probe AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Probe {
    pub(crate) fn before(storage: Arc<dyn TtlStorage<u32>>, clock: Arc<dyn Clock>) -> Self {
        Self {
            storage,
            clock,
            calls: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            act: Mutex::default(),
            min_ttl: Mutex::default(),
            hints: AtomicBool::new(false),
        }
    }

    /// Every call with its instant.
    pub(crate) fn calls(&self) -> Vec<(Verb, Instant)> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, verb: Verb) -> usize {
        self.calls().iter().filter(|(called, _)| *called == verb).count()
    }

    /// The most calls that were in flight at once.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    fn begin(&self, verb: Verb) -> InFlight<'_> {
        self.calls.lock().unwrap().push((verb, self.clock.now()));
        let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(in_flight, Ordering::SeqCst);
        let guard = InFlight(&self.in_flight);
        // The action may panic.
        if let Some(act) = &*self.act.lock().unwrap_or_else(PoisonError::into_inner) {
            act(verb);
        }
        guard
    }
}

#[async_trait]
impl TtlStorage<u32> for Probe {
    fn limits(&self) -> Limits {
        let limits = self.storage.limits();
        Limits { min_ttl: self.min_ttl.lock().unwrap().unwrap_or(limits.min_ttl), ..limits }
    }

    async fn insert_if_not_exist(
        &self,
        key: &u32,
        vacant: Vacant,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        let _in_flight = self.begin(Verb::InsertIfNotExist);
        self.storage.insert_if_not_exist(key, vacant, entry).await
    }

    async fn take_over(&self, key: &u32, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError> {
        let _in_flight = self.begin(Verb::TakeOver);
        self.storage.take_over(key, observed, entry).await
    }

    async fn compare_and_swap(&self, key: &u32, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let _in_flight = self.begin(Verb::CompareAndSwap);
        self.storage.compare_and_swap(key, held, entry).await
    }

    async fn compare_and_delete(
        &self,
        key: &u32,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let _in_flight = self.begin(Verb::CompareAndDelete);
        self.storage.compare_and_delete(key, incarnation, epoch).await
    }

    async fn get(&self, key: &u32) -> Result<Slot, ReadError> {
        let _in_flight = self.begin(Verb::Get);
        self.storage.get(key).await
    }

    async fn scan(&self, keys: &[u32]) -> Result<Vec<Slot>, ReadError> {
        let _in_flight = self.begin(Verb::Scan);
        self.storage.scan(keys).await
    }

    fn hints_of_releases(&self) -> bool {
        self.hints.load(Ordering::SeqCst)
    }

    async fn close(&self) {
        self.storage.close().await;
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Probe({} in flight)", self.in_flight())
    }
}
