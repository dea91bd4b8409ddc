//! For tests of storages and their users. [`compare_steps`]: random steps on a driver. [`MockSysVvmStorage`]: a storage
//! whose answers a test writes. [`Layer`]: one in front of another. [`FaultyStorage`]: one whose calls fail or hang.
//!
//! ```
//! use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber, StepOutcome, testing::MockSysVvmStorage};
//! use ielections::{Swap, TtlStorage as _, testing::entry};
//! use std::sync::Arc;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut driver = MockSysVvmStorage::new();
//! driver.expect_commit().times(1).returning(|_, _| Ok(StepOutcome::Applied));
//! let storage = ElectionsTtlStorage::new(Arc::new(driver));
//! let key = ElectionKey { cluster: "payroll".into(), slot: SlotNumber::FIRST };
//! let renewed = storage.compare_and_swap(&key, &entry(7, 1, 3), &entry(7, 2, 3)).await?;
//! assert_eq!(renewed, Swap::Swapped);
//! # Ok(())
//! # }
//! ```
#![allow(clippy::unwrap_used, reason = "the test that calls it fails by it")]

mod mock;

pub use crate::{drivers::fail_over, operator_requests::decodes as decodes_step_down};
pub use mock::MockSysVvmStorage;

use crate::{
    drivers::mem::MemDatabase,
    key::{ClusterName, ElectionKey, Partition, SlotNumber},
    step::{Columns, CurrentState, RecordColumns, Step, StepOutcome},
    sysvvm::{Description, ListedSetting, MOST_LISTED, OpenedStorage, SysVvmHints, SysVvmStorage},
};
use async_trait::async_trait;
use ielections::{
    Document, DocumentId, DocumentLimits, DocumentVersion, DocumentWrite, Entry, Epoch, Fence, FenceState,
    Holder, Incarnation, Limits, OnlyIf, Page, ReadError, Scan, Slot, Ttl, Vacant, Version, WriteError,
};
use std::{
    fmt::Debug,
    future::pending,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use vvm_clock::SystemClock;

/// A storage in front of another one: calls that it does not override pass through.
#[async_trait]
pub trait Layer: Debug + Send + Sync + 'static {
    /// The storage that calls are passed on to.
    fn beneath(&self) -> &dyn SysVvmStorage;

    /// Makes a storage of this layer.
    fn into_storage(self: Arc<Self>) -> Arc<dyn SysVvmStorage>
    where
        Self: Sized,
    {
        Arc::new(Layered(self))
    }

    /// See [`SysVvmStorage::limits`].
    fn limits(&self) -> Limits {
        self.beneath().limits()
    }

    /// See [`SysVvmStorage::commit`].
    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        self.beneath().commit(at, step).await
    }

    /// See [`SysVvmStorage::read`].
    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.beneath().read(at).await
    }

    /// See [`SysVvmStorage::setting`].
    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.beneath().setting(at).await
    }

    /// See [`SysVvmStorage::peek_some`].
    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        self.beneath().peek_some(at, seen).await
    }

    /// See [`SysVvmStorage::fence_state`].
    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        self.beneath().fence_state(at).await
    }

    /// See [`SysVvmStorage::document`].
    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.beneath().document(at, id).await
    }

    /// See [`SysVvmStorage::scan_documents`].
    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        self.beneath().scan_documents(at, scan).await
    }

    /// See [`SysVvmStorage::hints`]. None by default: those of the storage beneath would pass the layer by.
    fn hints(&self) -> Option<&dyn SysVvmHints> {
        None
    }

    /// See [`SysVvmStorage::shown_ages`].
    async fn shown_ages(&self, at: &[Partition]) -> Result<Vec<Option<Duration>>, ReadError> {
        self.beneath().shown_ages(at).await
    }

    /// See [`SysVvmStorage::close`].
    async fn close(&self) {
        self.beneath().close().await;
    }
}

#[derive(Debug)]
struct Layered<L>(Arc<L>);

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<L: Layer> SysVvmStorage for Layered<L> {
    fn limits(&self) -> Limits {
        self.0.limits()
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        self.0.commit(at, step).await
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.0.read(at).await
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let mut seen = vec![None; at.len()];
        self.0.peek_some(at, &mut seen).await?;
        // Without an error, none is missing.
        Ok(seen.into_iter().flatten().collect())
    }

    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        self.0.peek_some(at, seen).await
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.0.setting(at).await
    }

    fn document_limits(&self) -> Option<DocumentLimits> {
        self.0.beneath().document_limits()
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        self.0.fence_state(at).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.0.document(at, id).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        self.0.scan_documents(at, scan).await
    }

    fn hints(&self) -> Option<&dyn SysVvmHints> {
        self.0.hints()
    }

    fn opened(&self) -> Option<OpenedStorage> {
        self.0.beneath().opened()
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        self.0.beneath().describe().await
    }

    async fn shown_ages(&self, at: &[Partition]) -> Result<Vec<Option<Duration>>, ReadError> {
        self.0.shown_ages(at).await
    }

    async fn settings(&self) -> Result<Option<Vec<ListedSetting>>, ReadError> {
        self.0.beneath().settings().await
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

/// What happens to a renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is not applied, and never answered.
    Hang,
    /// It is refused: the disk is full.
    Refused,
}

/// Which calls fail, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outage {
    /// It takes no write: the disk is full.
    Full,
    /// It can't be reached.
    Away,
    /// It answers no call.
    Silent,
}

/// A storage that fails on request.
#[derive(Debug)]
pub struct FaultyStorage {
    storage: Arc<dyn SysVvmStorage>,
    next: Mutex<Option<Fault>>,
    outage: Mutex<Option<Outage>>,
    hangs_in_close: AtomicBool,
    hides_requests: AtomicBool,
}

impl FaultyStorage {
    /// Wraps `storage`. Nothing fails yet.
    pub fn over(storage: Arc<dyn SysVvmStorage>) -> Arc<Self> {
        let (hangs_in_close, hides_requests) = (AtomicBool::new(false), AtomicBool::new(false));
        let (next, outage) = (Mutex::default(), Mutex::default());
        Arc::new(Self { storage, next, outage, hangs_in_close, hides_requests })
    }

    /// Makes reads of the two partitions of requests fail, which are the last of a scan.
    pub fn hide_requests(&self) {
        self.hides_requests.store(true, Relaxed);
    }

    /// Lets `close` never end.
    pub fn hang_close(&self) {
        self.hangs_in_close.store(true, Relaxed);
    }

    /// Lets the next renewal fail.
    pub fn fail_next(&self, fault: Fault) {
        *lock(&self.next) = Some(fault);
    }

    /// Begins an outage, or ends it.
    pub fn set_outage(&self, outage: Option<Outage>) {
        *lock(&self.outage) = outage;
    }

    async fn check_read(&self) -> Result<(), ReadError> {
        let outage = *lock(&self.outage);
        match outage {
            None | Some(Outage::Full) => Ok(()),
            Some(Outage::Away) => Err(ReadError::Unavailable("no route".into())),
            Some(Outage::Silent) => pending().await,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Layer for FaultyStorage {
    fn beneath(&self) -> &dyn SysVvmStorage {
        &*self.storage
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        let outage = *lock(&self.outage);
        match outage {
            None => {}
            Some(Outage::Full) => return Err(WriteError::NotApplied("the disk is full".into())),
            Some(Outage::Away) => return Err(WriteError::Unknown("no route".into())),
            Some(Outage::Silent) => pending().await,
        }
        let Step::Renew { .. } = step else { return self.storage.commit(at, step).await };
        let fault = lock(&self.next).take();
        match fault {
            None => self.storage.commit(at, step).await,
            Some(Fault::Hang) => pending().await,
            Some(Fault::Refused) => Err(WriteError::NotApplied("the disk is full".into())),
        }
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.check_read().await?;
        self.storage.read(at).await
    }

    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        self.check_read().await?;
        if !self.hides_requests.load(Relaxed) {
            return self.storage.peek_some(at, seen).await;
        }
        let slots = at.len().saturating_sub(2);
        self.storage.peek_some(&at[..slots], &mut seen[..slots]).await?;
        Err(ReadError::Unavailable("the partition has no quorum".into()))
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.check_read().await?;
        self.storage.setting(at).await
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        self.check_read().await?;
        self.storage.fence_state(at).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.check_read().await?;
        self.storage.document(at, id).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        self.check_read().await?;
        self.storage.scan_documents(at, scan).await
    }

    async fn close(&self) {
        if self.hangs_in_close.load(Relaxed) {
            pending::<()>().await;
        }
        self.storage.close().await;
    }
}

/// Few, so that steps meet.
const SLOTS: NonZeroU32 = NonZeroU32::new(2).unwrap();
const IDS: [&str; 3] = ["a", "a\0", "\u{7f}"];

/// Commits random steps to a driver, and to a storage in memory, which does what [`decide`](crate::decide) says.
/// Compares each outcome and each state that is read. About half of the steps are refused. `open` opens a handle;
/// handles are closed and opened anew between steps. `name` is a new cluster. `seed` selects the steps.
///
/// # Panics
/// If the driver answers otherwise, or fails.
pub async fn compare_steps(
    open: impl AsyncFn() -> Arc<dyn SysVvmStorage>,
    name: &str,
    seed: u64,
    steps: u64,
) {
    let cluster = ClusterName::from(name);
    let of_slot = |slot| ElectionKey { cluster: cluster.clone(), slot }.partition();
    let slots: Vec<_> = SlotNumber::all(SLOTS).map(of_slot).collect();
    let setting = cluster.slot_count_partition();
    let memory = MemDatabase::new(Arc::new(SystemClock::start().unwrap())).open();
    let mut driver = open().await;
    // Seeds that differ by one draw other steps from the first on.
    let state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = Draw { state, min_ttl: driver.limits().min_ttl, number: 0 };
    let mut seen = vec![Seen::default(); slots.len()];
    for number in 1..=steps {
        draw.number = number;
        if draw.one_in(16) {
            driver.close().await;
            driver = open().await;
        }
        let slot = draw.below(slots.len());
        let state = memory.fence_state(&slots[slot]).await.unwrap();
        let (at, step) = if draw.one_in(12) {
            (&setting, Step::settle(&(SLOTS.get() + draw.below(2) as u32).to_be_bytes()))
        } else {
            (&slots[slot], draw.step(&state, &seen[slot], driver.document_limits().is_some()))
        };
        let about = format!("seed {seed}, step {number} on {at}: {step:?}");
        let expected = outcome(&step, memory.commit(at.clone(), step.clone()).await);
        assert_eq!(outcome(&step, driver.commit(at.clone(), step.clone()).await), expected, "{about}");
        if expected == StepOutcome::Applied {
            seen[slot].note(&step);
        }
        compare_states(&*driver, &*memory, &slots, &setting, &about).await;
    }
    driver.close().await;
}

/// The outcome without ages. A driver may not know which call stored a setting.
fn outcome(step: &Step, done: Result<StepOutcome, WriteError>) -> StepOutcome {
    match (step, done.unwrap()) {
        (Step::Settle { value }, StepOutcome::Refused(CurrentState::Setting(stands))) if stands == *value => {
            StepOutcome::Applied
        }
        (_, StepOutcome::Refused(CurrentState::Slot(slot))) => StepOutcome::Refused(without_age(slot).into()),
        (_, done) => done,
    }
}

/// The slot without an age, which only drivers have.
pub fn without_age(slot: Slot) -> Slot {
    match slot {
        Slot::Held { entry, .. } => Slot::Held { entry, proven_age: None },
        vacant @ Slot::Vacant(_) => vacant,
    }
}

async fn compare_states(
    driver: &dyn SysVvmStorage,
    memory: &dyn SysVvmStorage,
    slots: &[Partition],
    setting: &Partition,
    about: &str,
) {
    let scan = Scan { limit: IDS.len(), ..Scan::default() };
    for at in slots {
        let expected = memory.fence_state(at).await.unwrap();
        let slot = without_age(expected.slot);
        assert_eq!(without_age(driver.read(at.clone()).await.unwrap()), slot, "{about}");
        if driver.document_limits().is_some() {
            let FenceState { slot: fenced, last } = driver.fence_state(at).await.unwrap();
            assert_eq!((without_age(fenced), last), (slot, expected.last), "{about}");
            let expected = memory.scan_documents(at, &scan).await.unwrap().documents;
            assert_eq!(driver.scan_documents(at, &scan).await.unwrap().documents, expected, "{about}");
        }
    }
    let expected = memory.setting(setting.clone()).await.unwrap();
    assert_eq!(driver.setting(setting.clone()).await.unwrap(), expected, "{about}");
    if let Some(listed) = driver.settings().await.unwrap() {
        // A full list may end before it.
        let shown = listed.iter().filter(|(at, _)| at == setting).collect::<Vec<_>>();
        let is_full = listed.len() == MOST_LISTED && shown.is_empty();
        let times = shown.len();
        assert!(is_full || times == usize::from(expected.is_some()), "{about}: listed {times} times");
        for value in shown.into_iter().filter_map(|(_, value)| value.as_ref()) {
            assert_eq!(Some(value), expected.as_ref(), "{about}");
        }
    }
}

#[derive(Clone, Default)]
struct Seen {
    states: Vec<Slot>,
    records: Vec<Entry>,
}

impl Seen {
    fn note(&mut self, step: &Step) {
        match step {
            Step::Claim { to, .. } | Step::Renew { to, .. } => {
                self.records.push(to.clone());
                self.states.push(Slot::Held { entry: to.clone(), proven_age: None });
            }
            Step::Release { epoch, .. } => {
                self.states.push(Slot::Vacant(Vacant { last_epoch: Some(*epoch) }));
            }
            Step::Batch { .. } | Step::Settle { .. } => {}
        }
    }
}

struct Draw {
    state: u64,
    min_ttl: Duration,
    /// Of the step: no two steps write one version.
    number: u64,
}

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) as usize % limit
    }

    fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }

    fn step(&mut self, stands: &FenceState, seen: &Seen, has_documents: bool) -> Step {
        // Mostly the present one; else one that was replaced.
        let record = match stands.slot.entry() {
            Some(entry) if !self.one_in(4) => Some(entry),
            _ if seen.records.is_empty() => None,
            _ => seen.records.get(self.below(seen.records.len())),
        };
        match (self.below(8), record) {
            (0..=2, _) | (_, None) => {
                let from = match self.below(4) {
                    0 if !seen.states.is_empty() => &seen.states[self.below(seen.states.len())],
                    1 => &Slot::Vacant(Vacant { last_epoch: None }),
                    _ => &stands.slot,
                };
                let after = stands.slot.last_epoch().map_or(0, Epoch::get);
                Step::claim(from, &self.entry(Incarnation::from_bytes([self.number as u8; 16]), after + 1))
            }
            (3..=4, Some(from)) => Step::renew(from, &self.entry(from.incarnation(), from.epoch.get())),
            (5, Some(record)) => Step::release(record.incarnation(), record.epoch),
            (_, Some(record)) if has_documents => {
                let after = stands.last.get() + u64::from(self.one_in(8));
                let after = DocumentVersion::from_stored(after.saturating_sub(self.one_in(8).into()));
                let other = Incarnation::from_bytes([0xff; 16]);
                let incarnation = if self.one_in(8) { other } else { record.incarnation() };
                let fence = Fence { epoch: record.epoch, incarnation, after };
                let writes = IDS.iter().filter_map(|id| self.write(id, stands.last)).collect();
                Step::Batch { fence, writes }
            }
            (_, Some(record)) => Step::renew(record, &self.entry(record.incarnation(), record.epoch.get())),
        }
    }

    fn entry(&mut self, incarnation: Incarnation, epoch: u64) -> Entry {
        Entry {
            holder: Holder::new(format!("holder-{}", self.below(3))).unwrap(),
            version: Version { incarnation, write: self.number },
            ttl: Ttl::new(self.min_ttl * (1 + self.below(3) as u32) + Duration::from_nanos(self.number))
                .unwrap(),
            epoch: Epoch::new(epoch).unwrap(),
        }
    }

    fn write(&mut self, id: &'static str, last: DocumentVersion) -> Option<DocumentWrite> {
        let only_if = match self.below(8) {
            0 => OnlyIf::Absent,
            1 => OnlyIf::Version(last),
            _ => OnlyIf::Always,
        };
        let id = DocumentId::new(id).unwrap();
        let body = self.number.to_be_bytes().to_vec().into();
        match self.below(4) {
            0 => None,
            1 => Some(DocumentWrite::Delete { id, only_if }),
            _ => Some(DocumentWrite::Put { id, body, only_if }),
        }
    }
}

/// Reads bytes as the columns of a slot. Returns whether they are one. For tests of damaged input.
pub fn decodes_columns(row: &[u8]) -> bool {
    let columns = || {
        let (epoch, rest) = row.split_first_chunk()?;
        let epoch = u64::from_be_bytes(*epoch);
        if rest.is_empty() {
            return Some(Columns { epoch, record: None });
        }
        let (incarnation, rest) = rest.split_at_checked(16)?;
        let (write, rest) = rest.split_first_chunk()?;
        let (ttl_nanos, holder) = rest.split_first_chunk()?;
        let [write, ttl_nanos] = [write, ttl_nanos].map(|number| u64::from_be_bytes(*number));
        Some(Columns { epoch, record: Some(RecordColumns { incarnation, write, ttl_nanos, holder }) })
    };
    columns().is_some_and(|columns| columns.slot().is_ok())
}
