use super::{Counts, Fault, Injected, Plan, Verb};
use crate::{
    BatchOutcome, Claim, Delete, Document, DocumentId, DocumentLimits, DocumentStorage, DocumentWrite, Entry,
    Epoch, Fence, FenceState, Incarnation, Key, Limits, Page, ReadError, Scan, Slot, Swap, TtlStorage,
    Vacant, WriteError, storage::Cause,
};
use async_trait::async_trait;
use futures_util::future::{BoxFuture, Either, select};
use std::{
    collections::BTreeMap,
    fmt,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::oneshot;
use vvm_clock::{Clock, Instant};

/// A storage whose calls fail, hang, are delayed, lost or reordered, as planned. It logs them. The storage behind it
/// must answer without waiting, as a [`Model`](crate::testing::Model) or a driver in memory does.
///
/// It simulates the network of one process or of all: several may stand before one storage. Dropping the caller does
/// not cancel a write in flight: it arrives with the next call when due, or with [`land_late`](Self::land_late).
#[derive(Debug)]
pub struct FaultyStorage<K> {
    storage: Arc<dyn TtlStorage<K>>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    batches: Batches,
}

type Batches = Arc<Mutex<Vec<Vec<DocumentWrite>>>>;

/// A call in the log of a [`FaultyStorage`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logged {
    /// What was called.
    pub verb: Verb,
    /// When.
    pub at: Instant,
    /// When it was answered, or its caller dropped.
    pub until: Option<Instant>,
    /// What was planned for it.
    pub fault: Option<Fault>,
}

#[derive(Default)]
struct State {
    plan: Plan,
    network: Network,
    counts: Counts,
    log: Vec<Logged>,
    watch: Option<Watch>,
    hints: bool,
    page_limit: Option<usize>,
}

type Watch = Arc<dyn Fn(Verb) + Send + Sync>;

impl fmt::Debug for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}, {} calls in flight", self.plan, self.network.under_way.len())
    }
}

/// Planning faults.
impl<K: Key> FaultyStorage<K> {
    /// A network without faults before `storage`. Delays are measured on `clock`.
    pub fn new(storage: Arc<dyn TtlStorage<K>>, clock: Arc<dyn Clock>) -> Self {
        Self { storage, clock, state: Mutex::default(), batches: Arc::default() }
    }

    /// Plans `fault` for the next call of `verb` that has no plan yet.
    pub fn fail_next(&self, verb: Verb, fault: Fault) {
        self.state().plan.next.entry(verb).or_default().push_back(Some(fault));
    }

    /// Plans no fault for the next call of `verb` that has no plan yet.
    pub fn pass_next(&self, verb: Verb) {
        self.state().plan.next.entry(verb).or_default().push_back(None);
    }

    /// Plans `fault` for every call of `verb` without another plan.
    pub fn fail_always(&self, verb: Verb, fault: Fault) {
        self.state().plan.always.insert(verb, fault);
    }

    /// Plans no fault for every call of `verb` without another plan.
    pub fn pass_always(&self, verb: Verb) {
        self.state().plan.always.remove(&verb);
    }

    /// Removes all plans. Calls in flight stay in flight.
    pub fn heal(&self) {
        self.state().plan = Plan::default();
    }

    /// Runs `watch` during every call from now on. It may panic, as a driver may.
    pub fn watch(&self, watch: impl Fn(Verb) + Send + Sync + 'static) {
        self.state().watch = Some(Arc::new(watch));
    }

    /// Whether it says from now on that hints follow releases.
    pub fn say_hints_follow(&self, hints: bool) {
        self.state().hints = hints;
    }

    /// From now on a page has at most this number of documents.
    pub fn limit_pages(&self, documents: usize) {
        self.state().page_limit = Some(documents);
    }
}

/// What was called.
impl<K: Key> FaultyStorage<K> {
    /// What became of writes in flight so far.
    pub fn counts(&self) -> Counts {
        self.state().counts.clone()
    }

    /// The number of calls so far.
    pub fn calls(&self) -> usize {
        self.state().log.len()
    }

    /// All calls, in order.
    pub fn log(&self) -> Vec<Logged> {
        self.state().log.clone()
    }

    /// The calls of `verb`, in order.
    pub fn calls_of(&self, verb: Verb) -> Vec<Logged> {
        self.state().log.iter().filter(|call| call.verb == verb).copied().collect()
    }

    /// How often `verb` was called.
    pub fn count(&self, verb: Verb) -> u64 {
        self.state().log.iter().filter(|call| call.verb == verb).count() as u64
    }

    /// How often `fault` happened to a call.
    pub fn struck(&self, fault: Fault) -> usize {
        self.state().log.iter().filter(|call| call.fault == Some(fault)).count()
    }

    /// How many callers wait for their answers.
    pub fn waiting(&self) -> usize {
        self.state().log.iter().filter(|call| call.until.is_none()).count()
    }

    /// The batches that were applied, in order.
    pub fn batches(&self) -> Vec<Vec<DocumentWrite>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Calls in flight.
impl<K: Key> FaultyStorage<K> {
    /// The number of calls in flight: late, with a slow request, or hanging.
    pub fn under_way(&self) -> usize {
        self.state().network.under_way.len()
    }

    async fn deliver_due(&self) {
        self.land(self.clock.now()).await;
    }

    /// Carries out all calls in flight, also those that hang.
    pub async fn land_late(&self) {
        self.land(Instant::NEVER).await;
    }

    /// Loses all calls in flight. Callers that still wait get `Unknown`, or `Unavailable`.
    pub fn lose_all(&self) {
        // Dropped outside the lock, because dropping a sender wakes its caller.
        let lost = std::mem::take(&mut self.state().network.under_way);
        drop(lost);
    }

    async fn land(&self, until: Instant) {
        while let Some(parcel) = self.arrived(until) {
            let late = parcel.await;
            let counts = &mut self.state().counts;
            counts.landed_late += u64::from(late == Some(true));
            counts.refused_late += u64::from(late == Some(false));
        }
    }

    fn arrived(&self, until: Instant) -> Option<Parcel> {
        self.state().network.arrived(until)
    }

    /// A poisoned lock is taken: every change is a single step.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls in flight, in the order of their arrival: by time, then as sent. Dropping the caller does not cancel them.
#[derive(Default)]
struct Network {
    under_way: BTreeMap<(Instant, u64), Parcel>,
    sent: u64,
}

/// A call in flight. Its first poll is its arrival. Returns `None` if the caller has the answer; else if it applied.
type Parcel = BoxFuture<'static, Option<bool>>;

impl Network {
    /// Sends `parcel`. With [`Instant::NEVER`] it does not arrive by itself.
    fn send(&mut self, arrives_at: Instant, parcel: Parcel) {
        self.sent += 1;
        self.under_way.insert((arrives_at, self.sent), parcel);
    }

    fn arrived(&mut self, now: Instant) -> Option<Parcel> {
        let first = self.under_way.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

struct Caller<'storage, K: Key>(&'storage FaultyStorage<K>, usize);

impl<K: Key> Drop for Caller<'_, K> {
    fn drop(&mut self) {
        let now = self.0.clock.now();
        self.0.state().log[self.1].until = Some(now);
    }
}

impl<K: Key> FaultyStorage<K> {
    async fn strike(&self, verb: Verb) -> (Option<Fault>, Caller<'_, K>) {
        let (caller, watch) = {
            let mut state = self.state();
            state.log.push(Logged { verb, at: self.clock.now(), until: None, fault: None });
            (Caller(self, state.log.len() - 1), state.watch.clone())
        };
        if let Some(watch) = watch {
            watch(verb);
        }
        self.deliver_due().await;
        let mut state = self.state();
        let fault = state.plan.strike(verb);
        state.log[caller.1].fault = fault;
        (fault, caller)
    }

    /// Carries out a write, which answers `applied` if it is. It owns all that it needs: it may outlive its caller.
    async fn write<T: PartialEq + Send + 'static>(
        &self,
        verb: Verb,
        applied: T,
        write: impl Future<Output = Result<T, WriteError>> + Send + 'static,
    ) -> Result<T, WriteError> {
        let (fault, _caller) = self.strike(verb).await;
        let Some(fault) = fault else { return write.await };
        let unknown = || WriteError::Unknown(Injected(fault).into());
        match fault {
            Fault::NotApplied => Err(WriteError::NotApplied(Injected(fault).into())),
            Fault::Fatal => Err(WriteError::Fatal(Injected(fault).into())),
            Fault::Replaced => Err(WriteError::Replaced(Injected(fault).into())),
            Fault::LostRequest => Err(unknown()),
            Fault::LostAnswer => write.await.and(Err(unknown())),
            Fault::SlowAnswer(delay) => {
                let outcome = write.await;
                self.clock.sleep(delay).await;
                outcome
            }
            Fault::Late(delay) => {
                drop(self.send(self.clock.now().after(delay), applied, write));
                Err(unknown())
            }
            Fault::SlowRequest(delay) => {
                let arrives_at = self.clock.now().after(delay);
                let answer = self.send(arrives_at, applied, write);
                // Another call may carry it out first.
                match select(answer, self.clock.sleep_until(arrives_at)).await {
                    Either::Left((answer, _)) => answer,
                    Either::Right(((), answer)) => {
                        self.deliver_due().await;
                        answer.await
                    }
                }
                .unwrap_or_else(|_lost| Err(unknown()))
            }
            Fault::Hang => {
                let answer = self.send(Instant::NEVER, applied, write);
                answer.await.unwrap_or_else(|_lost| Err(unknown()))
            }
        }
    }

    /// Sends a write. Dropping its answer does not cancel it.
    fn send<T: PartialEq + Send + 'static>(
        &self,
        arrives_at: Instant,
        applied: T,
        write: impl Future<Output = Result<T, WriteError>> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, WriteError>> {
        let (sender, answer) = oneshot::channel();
        let parcel = async move {
            let late = sender.send(write.await).err()?;
            Some(late.is_ok_and(|outcome| outcome == applied))
        };
        self.state().network.send(arrives_at, Box::pin(parcel));
        answer
    }

    async fn read<T>(
        &self,
        verb: Verb,
        read: impl Future<Output = Result<T, ReadError>> + Send,
    ) -> Result<T, ReadError> {
        let (fault, _caller) = self.strike(verb).await;
        let Some(fault) = fault else { return read.await };
        let unavailable = || ReadError::Unavailable(Injected(fault).into());
        let read = pin!(read);
        match fault {
            Fault::Fatal => Err(ReadError::Fatal(Injected(fault).into())),
            Fault::Replaced => Err(ReadError::Replaced(Injected(fault).into())),
            Fault::NotApplied | Fault::LostRequest | Fault::Late(_) => Err(unavailable()),
            Fault::LostAnswer => {
                read.await?;
                Err(unavailable())
            }
            Fault::SlowRequest(delay) => {
                self.clock.sleep(delay).await;
                read.await
            }
            Fault::SlowAnswer(delay) => {
                let answer = read.await;
                self.clock.sleep(delay).await;
                answer
            }
            Fault::Hang => {
                let (word, heard) = oneshot::channel();
                let parcel: Parcel = Box::pin(async move {
                    let _gone = word.send(());
                    None
                });
                self.state().network.send(Instant::NEVER, parcel);
                heard.await.map_err(|_lost| unavailable())?;
                read.await
            }
        }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<K: Key> TtlStorage<K> for FaultyStorage<K> {
    fn limits(&self) -> Limits {
        self.storage.limits()
    }

    async fn insert_if_not_exist(&self, key: &K, vacant: Vacant, entry: &Entry) -> Result<Claim, WriteError> {
        let (storage, key, entry) = (Arc::clone(&self.storage), key.clone(), entry.clone());
        let write = async move { storage.insert_if_not_exist(&key, vacant, &entry).await };
        self.write(Verb::InsertIfNotExist, Claim::Claimed, write).await
    }

    async fn take_over(&self, key: &K, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError> {
        let (storage, key) = (Arc::clone(&self.storage), key.clone());
        let (observed, entry) = (observed.clone(), entry.clone());
        let write = async move { storage.take_over(&key, &observed, &entry).await };
        self.write(Verb::TakeOver, Claim::Claimed, write).await
    }

    async fn compare_and_swap(&self, key: &K, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let (storage, key) = (Arc::clone(&self.storage), key.clone());
        let (held, entry) = (held.clone(), entry.clone());
        let write = async move { storage.compare_and_swap(&key, &held, &entry).await };
        self.write(Verb::CompareAndSwap, Swap::Swapped, write).await
    }

    async fn compare_and_delete(
        &self,
        key: &K,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let (storage, key) = (Arc::clone(&self.storage), key.clone());
        let write = async move { storage.compare_and_delete(&key, incarnation, epoch).await };
        self.write(Verb::CompareAndDelete, Delete::Deleted, write).await
    }

    async fn get(&self, key: &K) -> Result<Slot, ReadError> {
        self.read(Verb::Get, self.storage.get(key)).await
    }

    async fn scan(&self, keys: &[K]) -> Result<Vec<Slot>, ReadError> {
        self.read(Verb::Scan, self.storage.scan(keys)).await
    }

    async fn scan_some(&self, keys: &[K], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        self.read(Verb::Scan, self.storage.scan_some(keys, seen)).await
    }

    fn hints_of_releases(&self) -> bool {
        self.state().hints
    }

    fn documents(&self) -> Option<&dyn DocumentStorage<K>> {
        self.storage.documents().map(|_| self as _)
    }

    async fn close(&self) {
        self.storage.close().await;
    }
}

/// `FaultyStorage::documents` is `Some` only if the storage has documents, so this never panics.
fn of<K: Key>(storage: &dyn TtlStorage<K>) -> &dyn DocumentStorage<K> {
    storage.documents().expect("the storage has documents")
}

#[deny(clippy::missing_trait_methods)]
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
        let (storage, batches) = (Arc::clone(&self.storage), Arc::clone(&self.batches));
        let (key, fence, batch) = (key.clone(), *fence, batch.to_vec());
        let write = async move {
            let outcome = of(&*storage).write_documents(&key, &fence, &batch).await;
            if matches!(outcome, Ok(BatchOutcome::Written)) {
                batches.lock().unwrap_or_else(PoisonError::into_inner).push(batch);
            }
            outcome
        };
        self.write(Verb::WriteDocuments, BatchOutcome::Written, write).await
    }

    async fn fence_state(&self, key: &K) -> Result<FenceState, ReadError> {
        self.read(Verb::FenceState, of(&*self.storage).fence_state(key)).await
    }

    async fn document(&self, key: &K, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.read(Verb::Document, of(&*self.storage).document(key, id)).await
    }

    async fn scan_documents(&self, key: &K, scan: &Scan) -> Result<Page, ReadError> {
        let limit = self.state().page_limit.map_or(scan.limit, |page| page.min(scan.limit));
        let scan = Scan { limit, ..scan.clone() };
        self.read(Verb::ScanDocuments, of(&*self.storage).scan_documents(key, &scan)).await
    }
}

impl<K: Key> FaultyStorage<K> {
    /// Replaces the record in the slot by `entry`, without faults.
    pub async fn tamper(&self, key: &K, entry: Entry) -> Result<(), Cause> {
        let mut slot = self.storage.get(key).await?;
        loop {
            let claim = match &slot {
                Slot::Vacant(vacant) => self.storage.insert_if_not_exist(key, *vacant, &entry).await?,
                Slot::Held { entry: standing, .. } => self.storage.take_over(key, standing, &entry).await?,
            };
            match claim {
                Claim::Claimed => break,
                Claim::Refused(standing) => slot = standing,
            }
        }
        Ok(())
    }

    /// Deletes the record in the slot, without faults. Its epoch stays.
    pub async fn wipe(&self, key: &K) -> Result<(), Cause> {
        let mut slot = self.storage.get(key).await?;
        while let Some(standing) = slot.entry() {
            match self.storage.compare_and_delete(key, standing.incarnation(), standing.epoch).await? {
                Delete::Deleted => break,
                Delete::Mismatch(standing) => slot = standing,
            }
        }
        Ok(())
    }
}
