//! A storage with one bug. Real storages have had each of them.

use super::Bug;
use crate::Name;
use async_trait::async_trait;
use ielections::{
    Claim, Delete, Entry, Epoch, Holder, Incarnation, Limits, ReadError, Slot, Swap, Ttl, TtlStorage, Vacant,
    Version, WriteError, testing::contract::StorageUnderTest,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::MutexGuard;
use vvm_clock::{Instant, SystemClock};

/// A slot with the time of its write and the handle that wrote it.
#[derive(Clone, Debug)]
struct Kept {
    slot: Slot,
    before: Slot,
    issued_at: Instant,
    writer: usize,
    writes: u64,
}

#[derive(Debug, Default)]
struct Data {
    slots: HashMap<Name, Kept>,
    handles: usize,
}

/// The storage: every handle has the bug.
#[derive(Debug)]
pub(super) struct Planted {
    bug: Bug,
    data: Arc<Mutex<Data>>,
    /// Writes are carried out one after another.
    turns: Arc<tokio::sync::Mutex<()>>,
    all_closed: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Handle {
    bug: Bug,
    number: usize,
    data: Arc<Mutex<Data>>,
    /// Writes are carried out one after another.
    turns: Arc<tokio::sync::Mutex<()>>,
    closed: AtomicBool,
    all_closed: Arc<AtomicBool>,
}

impl Planted {
    pub(super) fn new(bug: Bug) -> Self {
        Self { bug, data: Arc::default(), turns: Arc::default(), all_closed: Arc::default() }
    }
}

#[async_trait]
impl StorageUnderTest for Planted {
    type Key = Name;

    async fn open(&self) -> Arc<dyn TtlStorage<Name>> {
        let number = {
            let mut data = self.data.lock().unwrap();
            data.handles += 1;
            data.handles
        };
        let (bug, data, turns) = (self.bug, Arc::clone(&self.data), Arc::clone(&self.turns));
        let all_closed = Arc::clone(&self.all_closed);
        Arc::new(Handle { bug, number, data, turns, closed: AtomicBool::new(false), all_closed })
    }

    fn key(&self, name: &[u8]) -> Name {
        Name(name.to_vec())
    }
}

const NEVER_LED: Slot = Slot::Vacant(Vacant { last_epoch: None });
const MAX_KEY_BYTES: usize = 100_000;
const SCAN_BATCH: usize = 4;
const FOLDER_BYTES: usize = 125;

impl Handle {
    fn has(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    /// The key as the storage keeps it, or why it refuses it.
    fn name(&self, key: &Name) -> Result<Name, &'static str> {
        if self.closed.load(Ordering::SeqCst) || self.all_closed.load(Ordering::SeqCst) {
            return Err("closed");
        }
        if key.0.len() > MAX_KEY_BYTES && !self.has(Bug::LimitsAreIgnored) {
            return Err("too long");
        }
        if self.has(Bug::KeyMeetsFolder) && !key.0.is_empty() && key.0.len().is_multiple_of(FOLDER_BYTES) {
            return Err("is a folder");
        }
        let Name(bytes) = key;
        Ok(Name(match self.bug {
            Bug::KeyEndsAtZero => bytes.iter().copied().take_while(|&byte| byte != 0).collect(),
            Bug::KeyIgnoresCase => bytes.to_ascii_lowercase(),
            Bug::KeyCut => bytes[..bytes.len().min(32_000)].to_vec(),
            _ => bytes.clone(),
        }))
    }

    fn kept(&self, name: &Name) -> Option<Kept> {
        let kept = self.data.lock().unwrap().slots.get(name).cloned()?;
        let entry = kept.slot.entry().cloned();
        let expired = entry.filter(|entry| SystemClock::read().since(kept.issued_at) > entry.ttl.get());
        match (self.bug, expired) {
            (Bug::Expires, Some(entry)) => {
                Some(Kept { slot: Slot::Vacant(Vacant { last_epoch: Some(entry.epoch) }), ..kept })
            }
            (Bug::ExpiresAndForgets, Some(_)) => None,
            _ => Some(kept),
        }
    }

    fn slot(&self, name: &Name) -> Slot {
        let Some(kept) = self.kept(name) else { return NEVER_LED };
        let stale = self.has(Bug::ReadIsStale) && kept.writer != self.number;
        match if stale { kept.before } else { kept.slot } {
            Slot::Held { entry, .. } => {
                let mut age = SystemClock::read().since(kept.issued_at);
                if self.has(Bug::AgeIsGuessed) {
                    age += Duration::from_secs(3600);
                }
                Slot::Held { entry, proven_age: Some(age) }
            }
            vacant => vacant,
        }
    }

    fn refusal(&self, name: &Name) -> Slot {
        match self.slot(name) {
            _ if self.has(Bug::RefusalShowsNothing) => NEVER_LED,
            Slot::Held { entry, proven_age } if self.has(Bug::RefusalAgeIsGuessed) => {
                Slot::Held { entry, proven_age: proven_age.map(|age| age + Duration::from_secs(3600)) }
            }
            slot => slot,
        }
    }

    /// The entry as the storage keeps it.
    fn mangled(&self, entry: &Entry) -> Entry {
        let mut entry = entry.clone();
        let holder = entry.holder.as_str();
        match self.bug {
            Bug::TtlInMilliseconds => {
                entry.ttl = Ttl::new(Duration::from_millis(entry.ttl.get().as_millis() as u64)).unwrap();
            }
            Bug::WriteAsI32 => entry.version.write = entry.version.write.min(i32::MAX as u64),
            Bug::HolderEndsAtZero => {
                entry.holder = Holder::new(holder.split('\0').next().unwrap_or_default()).unwrap();
            }
            Bug::HolderCut => {
                entry.holder = Holder::new(holder.chars().take(254).collect::<String>()).unwrap()
            }
            Bug::EpochAsU32 => entry.epoch = Epoch::new(u64::from(entry.epoch.get() as u32).max(1)).unwrap(),
            _ => {}
        }
        entry
    }

    fn put(&self, name: &Name, slot: Slot) {
        let mut data = self.data.lock().unwrap();
        let now = SystemClock::read();
        let kept = data.slots.entry(name.clone()).or_insert(Kept {
            slot: NEVER_LED,
            before: NEVER_LED,
            issued_at: now,
            writer: self.number,
            writes: 0,
        });
        let (bug, number) = (self.bug, self.number);
        let claimed_at = kept.issued_at;
        kept.before = std::mem::replace(&mut kept.slot, slot);
        kept.issued_at = if bug == Bug::AgeIsOfTheClaim { claimed_at } else { now };
        kept.writer = number;
        kept.writes += 1;
    }

    async fn put_entry(&self, name: &Name, entry: &Entry) {
        let entry = self.mangled(entry);
        if self.has(Bug::WritesInTwoSteps)
            && let Some(standing) = self.slot(name).entry()
        {
            let half = Entry { holder: entry.holder.clone(), ttl: Ttl::DEFAULT, ..standing.clone() };
            self.put(name, Slot::Held { entry: half, proven_age: None });
            tokio::task::yield_now().await;
        }
        self.put(name, Slot::Held { entry, proven_age: None });
    }

    /// Waits for the turn of this write. Other writes may come first.
    async fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        tokio::task::yield_now().await;
        if self.has(Bug::ChecksThenWrites) { None } else { Some(self.turns.lock().await) }
    }

    async fn checked(&self) {
        if self.has(Bug::ChecksThenWrites) {
            tokio::task::yield_now().await;
        }
    }
}

fn fatal(cause: &'static str) -> WriteError {
    WriteError::Fatal(cause.into())
}

#[async_trait]
impl TtlStorage<Name> for Handle {
    fn limits(&self) -> Limits {
        Limits {
            min_ttl: Ttl::MIN,
            max_key_bytes: MAX_KEY_BYTES,
            max_value_bytes: 1000,
            scan_batch: SCAN_BATCH,
        }
    }

    async fn insert_if_not_exist(
        &self,
        key: &Name,
        vacant: Vacant,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        let name = self.name(key).map_err(fatal)?;
        let _turn = self.turn().await;
        let standing = self.kept(&name).map_or(NEVER_LED, |kept| kept.slot);
        let applies = match (&standing, self.bug) {
            (_, Bug::ClaimOverwrites) => true,
            (Slot::Held { .. }, _) => false,
            (Slot::Vacant(_), Bug::ClaimIgnoresEpoch) => true,
            (Slot::Vacant(standing), Bug::ClaimNeedsEpoch) => {
                *standing == vacant && vacant.last_epoch.is_some()
            }
            (Slot::Vacant(standing), Bug::ClaimNeedsFreshSlot) => {
                *standing == vacant && vacant.last_epoch.is_none()
            }
            (Slot::Vacant(standing), _) => *standing == vacant,
        };
        self.checked().await;
        if applies {
            self.put_entry(&name, entry).await;
        }
        let claimed = applies || self.has(Bug::ClaimLies);
        Ok(if claimed { Claim::Claimed } else { Claim::Refused(self.refusal(&name)) })
    }

    async fn take_over(&self, key: &Name, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError> {
        let name = self.name(key).map_err(fatal)?;
        let _turn = self.turn().await;
        let standing = self.kept(&name).and_then(|kept| kept.slot.entry().cloned());
        let applies = standing.is_some_and(|standing| match self.bug {
            Bug::TakeOverByIncarnation => standing.incarnation() == observed.incarnation(),
            Bug::TakeOverIgnoresEpoch => standing.version == observed.version,
            Bug::TakeOverOfFirstVersionOnly => standing == *observed && standing.version.write == 0,
            _ => standing.version == observed.version && standing.epoch == observed.epoch,
        });
        self.checked().await;
        if applies {
            self.put_entry(&name, entry).await;
        }
        let claimed = applies || self.has(Bug::ClaimLies);
        Ok(if claimed { Claim::Claimed } else { Claim::Refused(self.refusal(&name)) })
    }

    async fn compare_and_swap(&self, key: &Name, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let name = self.name(key).map_err(fatal)?;
        let _turn = self.turn().await;
        let kept = self.kept(&name);
        let writes = kept.as_ref().map_or(0, |kept| kept.writes);
        let standing = kept.and_then(|kept| kept.slot.entry().cloned());
        let applies = standing.as_ref().is_some_and(|standing| match self.bug {
            Bug::SwapByIncarnation => {
                standing.incarnation() == held.incarnation() && standing.epoch == held.epoch
            }
            Bug::SwapByWrite => standing.version.write == held.version.write && standing.epoch == held.epoch,
            Bug::SwapIgnoresEpoch => standing.version == held.version,
            Bug::SwapOnlyOnce => standing == held && writes < 2,
            _ => standing.version == held.version && standing.epoch == held.epoch,
        });
        self.checked().await;
        if applies {
            let kept_holder =
                standing.filter(|_| self.has(Bug::SwapKeepsHolder)).map(|standing| standing.holder);
            let holder = kept_holder.unwrap_or_else(|| entry.holder.clone());
            let version = Version { ..entry.version };
            self.put_entry(&name, &Entry { holder, version, ..entry.clone() }).await;
            if self.has(Bug::SwapDenies) && writes % 10 == 3 {
                return Err(WriteError::NotApplied("a lie".into()));
            }
        }
        let swapped = applies || self.has(Bug::SwapLies);
        Ok(if swapped { Swap::Swapped } else { Swap::Mismatch(self.refusal(&name)) })
    }

    async fn compare_and_delete(
        &self,
        key: &Name,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let name = self.name(key).map_err(fatal)?;
        let _turn = self.turn().await;
        let standing = self.kept(&name).and_then(|kept| kept.slot.entry().cloned());
        let applies = standing.is_some_and(|standing| match self.bug {
            Bug::ReleaseByEpoch => standing.epoch == epoch,
            Bug::ReleaseByIncarnation => standing.incarnation() == incarnation,
            Bug::ReleaseOfFirstVersionOnly => {
                standing.incarnation() == incarnation
                    && standing.epoch == epoch
                    && standing.version.write == 0
            }
            _ => standing.incarnation() == incarnation && standing.epoch == epoch,
        });
        if applies {
            let last_epoch = (!self.has(Bug::ReleaseForgetsEpoch)).then_some(epoch);
            self.put(&name, Slot::Vacant(Vacant { last_epoch }));
        }
        let deleted = applies || self.has(Bug::ReleaseLies);
        Ok(if deleted { Delete::Deleted } else { Delete::Mismatch(self.refusal(&name)) })
    }

    async fn get(&self, key: &Name) -> Result<Slot, ReadError> {
        let name = self.name(key).map_err(|cause| ReadError::Fatal(cause.into()))?;
        Ok(self.slot(&name))
    }

    async fn scan(&self, keys: &[Name]) -> Result<Vec<Slot>, ReadError> {
        let mut names = Vec::new();
        for key in keys {
            names.push(self.name(key).map_err(|cause| ReadError::Fatal(cause.into()))?);
        }
        if self.has(Bug::ScanSorts) {
            let sorted: BTreeMap<_, _> = names.iter().map(|name| (name.clone(), self.slot(name))).collect();
            return Ok(sorted.into_values().collect());
        }
        if self.has(Bug::ScanStopsAfterBatch) {
            names.truncate(SCAN_BATCH);
        }
        let slots = names.iter().map(|name| self.slot(name));
        Ok(slots.filter(|slot| !self.has(Bug::ScanSkipsVacant) || *slot != NEVER_LED).collect())
    }

    async fn close(&self) {
        match self.bug {
            Bug::CloseDoesNothing => return,
            Bug::CloseForgets => self.data.lock().unwrap().slots.clear(),
            Bug::CloseClosesAll => self.all_closed.store(true, Ordering::SeqCst),
            _ => {}
        }
        self.closed.store(true, Ordering::SeqCst);
    }
}
