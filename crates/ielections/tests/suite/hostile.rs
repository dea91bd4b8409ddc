//! [`HostileStorage`]: the model of the contract with one [`StorageFault`], in calls to it or in its answers.

pub(crate) mod documents;
pub(crate) mod faults;

use crate::Name;
use async_trait::async_trait;
use documents::Documents;
use faults::StorageFault::{self, *};
use ielections::{
    Claim, Delete, DocumentStorage, Entry, Epoch, Holder, Incarnation, Limits, ReadError, Slot, Swap, Ttl,
    TtlStorage, Vacant, WriteError,
    testing::{Model, ModelStorage},
};
use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::task::yield_now;
use vvm_clock::{Instant, SystemClock};

#[derive(Debug)]
pub(crate) struct HostileStorage {
    good: Arc<ModelStorage<Name>>,
    fault: StorageFault,
    shared: Arc<Shared>,
    /// What this handle wrote last.
    own: Mutex<BTreeMap<Name, Slot>>,
}

#[derive(Debug)]
pub(crate) struct Shared(Mutex<Memory>);

#[derive(Debug)]
struct Memory {
    model: Arc<Model<Name>>,
    handles: Vec<Arc<ModelStorage<Name>>>,
    /// The slot before its last write.
    before: BTreeMap<Name, Slot>,
    since: BTreeMap<Epoch, Instant>,
    documents: Documents,
}

impl Shared {
    pub(crate) fn new() -> Arc<Self> {
        let (handles, before, since) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let memory = Memory { model: Model::new(), handles, before, since, documents: Documents::default() };
        Arc::new(Self(Mutex::new(memory)))
    }

    pub(crate) fn open(self: &Arc<Self>, fault: StorageFault) -> Arc<HostileStorage> {
        let mut memory = self.memory();
        let good = memory.model.open();
        memory.handles.push(Arc::clone(&good));
        Arc::new(HostileStorage { good, fault, shared: Arc::clone(self), own: Mutex::default() })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap()
    }
}

enum RecordWrite {
    Claim(Vacant, Entry),
    TakeOver(Entry, Entry),
    Renewal(Entry, Entry),
    Release(Incarnation, Epoch),
}

use RecordWrite::{Claim as OfVacant, Release, Renewal, TakeOver};

impl HostileStorage {
    async fn write(&self, key: &Name, mut write: RecordWrite) -> Result<Result<(), Slot>, WriteError> {
        let key = &self.key(key);
        if self.fault == NameOfAFolder && !key.0.is_empty() && key.0.len().is_multiple_of(125) {
            return Err(WriteError::Fatal("is a folder".into()));
        }
        // A closed handle refuses the write itself.
        let Ok(stands) = self.good.get(key).await else { return self.applied(key, &write).await };
        self.store_wrongly(&mut write);
        if let Some(outcome) = self.decided_wrongly(key, &stands, &write).await {
            return Ok(outcome);
        }
        self.compare_wrongly(&stands, &mut write);
        match (self.applied(key, &write).await?, &write) {
            (Ok(()), Renewal(_, entry))
                if self.fault == LiesAboutARenewal && entry.version.write % 10 == 3 =>
            {
                Err(WriteError::NotApplied("a lie".into()))
            }
            (Ok(()), _) => {
                self.shared.memory().before.insert(key.clone(), stands);
                if let Ok(written) = self.good.get(key).await {
                    let _first_shown = self.shown(written.clone());
                    self.own.lock().unwrap().insert(key.clone(), written);
                }
                self.documents_after(key, &write).await;
                Ok(Ok(()))
            }
            (Err(_), _) if self.fault == AnswersARefusalAsApplied => Ok(Ok(())),
            (Err(slot), _) => Ok(Err(match (self.fault, slot) {
                (RefusalShowsAnEmptySlot, _) => vacant(None),
                (RefusalGuessesAnAge, Slot::Held { entry, .. }) => aged(entry, Duration::from_secs(3600)),
                (_, slot) => self.shown(slot),
            })),
        }
    }

    async fn applied(&self, key: &Name, write: &RecordWrite) -> Result<Result<(), Slot>, WriteError> {
        let of_claim = |claim| match claim {
            Claim::Claimed => Ok(()),
            Claim::Refused(slot) => Err(slot),
        };
        Ok(match write {
            OfVacant(vacant, entry) => of_claim(self.good.insert_if_not_exist(key, *vacant, entry).await?),
            TakeOver(observed, entry) => of_claim(self.good.take_over(key, observed, entry).await?),
            Renewal(held, entry) => match self.good.compare_and_swap(key, held, entry).await? {
                Swap::Swapped => Ok(()),
                Swap::Mismatch(slot) => Err(slot),
            },
            Release(incarnation, epoch) => {
                match self.good.compare_and_delete(key, *incarnation, *epoch).await? {
                    Delete::Deleted => Ok(()),
                    Delete::Mismatch(slot) => Err(slot),
                }
            }
        })
    }

    /// The outcome, if it does not depend on the comparison of the model.
    async fn decided_wrongly(
        &self,
        key: &Name,
        stands: &Slot,
        write: &RecordWrite,
    ) -> Option<Result<(), Slot>> {
        let written = stands.entry().map_or(0, |entry| entry.version.write);
        let applies = match write {
            OfVacant(vacant, _) => *stands == Slot::Vacant(*vacant),
            TakeOver(held, _) | Renewal(held, _) => {
                stands.entry().is_some_and(|entry| entry.is_same_write(held))
            }
            Release(incarnation, epoch) => {
                stands.entry().is_some_and(|entry| entry.is_of(*incarnation, *epoch))
            }
        };
        let shown = self.shown(stands.clone());
        match (self.fault, write) {
            (RefusesANewSlot, OfVacant(Vacant { last_epoch: None }, _))
            | (RefusesAReleasedSlot, OfVacant(Vacant { last_epoch: Some(_) }, _)) => {
                Some(Err(stands.clone()))
            }
            (ForgetsEpochs, OfVacant(Vacant { last_epoch: Some(_) }, _)) if stands.entry().is_none() => {
                Some(Err(vacant(None)))
            }
            (LetsRecordsExpire, TakeOver(..) | Renewal(..)) if shown.entry().is_none() => Some(Err(shown)),
            (AppliesToTheFirstVersionOnly, TakeOver(..) | Renewal(..) | Release(..)) if written > 0 => {
                Some(Err(stands.clone()))
            }
            (LosesRenewals, Renewal(..)) | (LosesReleases, Release(..)) if applies => Some(Ok(())),
            (ClaimOverwrites, OfVacant(_, entry)) => Some(self.force(key, entry).await),
            (RenewsAReleasedSlot, Renewal(_, entry)) if stands.entry().is_none() => {
                Some(self.force(key, entry).await)
            }
            (ChecksBeforeItWrites, OfVacant(_, entry) | TakeOver(_, entry) | Renewal(_, entry))
                if applies =>
            {
                yield_now().await;
                Some(self.force(key, entry).await)
            }
            (WritesInTwoSteps, Renewal(held, entry)) if applies => {
                let half = Entry { holder: entry.holder.clone(), ttl: Ttl::DEFAULT, ..held.clone() };
                let _half = self.force(key, &half).await;
                yield_now().await;
                None
            }
            _ => None,
        }
    }

    /// Lets the write name what stands, if this fault takes both for the same.
    fn compare_wrongly(&self, stands: &Slot, write: &mut RecordWrite) {
        match (stands, write) {
            (Slot::Vacant(stands), OfVacant(named, _)) => {
                let is_forgotten = self.fault == ForgetsEpochs && named.last_epoch.is_none();
                if is_forgotten || self.fault == ClaimIgnoresTheLastEpoch {
                    *named = *stands;
                }
            }
            (Slot::Held { entry, .. }, TakeOver(expected, _) | Renewal(expected, _)) => {
                let is_taken_for_it = match self.fault {
                    ComparesIncarnations => entry.incarnation() == expected.incarnation(),
                    ComparesNumbersOfWrites => entry.version.write == expected.version.write,
                    IgnoresTheEpoch => entry.version == expected.version,
                    _ => false,
                };
                if is_taken_for_it {
                    *expected = entry.clone();
                }
            }
            (Slot::Held { entry, .. }, Release(incarnation, epoch)) => match self.fault {
                ReleaseComparesEpochs if *epoch == entry.epoch => *incarnation = entry.incarnation(),
                ReleaseComparesIncarnations if *incarnation == entry.incarnation() => *epoch = entry.epoch,
                _ => {}
            },
            _ => {}
        }
    }

    fn store_wrongly(&self, write: &mut RecordWrite) {
        if let (KeepsTheHolder, Renewal(held, entry)) = (self.fault, &mut *write) {
            entry.holder = held.holder.clone();
        }
        let (OfVacant(_, entry) | TakeOver(_, entry) | Renewal(_, entry)) = write else { return };
        let (ttl, holder) = (entry.ttl.get(), entry.holder.as_str().to_owned());
        let set_ttl = |ttl: Duration| Ttl::new(ttl.max(Ttl::MIN)).unwrap();
        let set_holder = |name: &str| Holder::new(name).unwrap();
        match self.fault {
            HalvesTheTtl => entry.ttl = set_ttl(ttl / 2),
            RoundsTheTtl => entry.ttl = set_ttl(Duration::from_millis(ttl.as_millis() as u64)),
            CutsTheNumberOfWrites => entry.version.write = entry.version.write.min(i32::MAX as u64),
            CutsTheEpoch => entry.epoch = Epoch::new(u64::from(entry.epoch.get() as u32).max(1)).unwrap(),
            EndsAHolderAtZero => entry.holder = set_holder(holder.split('\0').next().unwrap()),
            CutsTheHolder => entry.holder = set_holder(&holder[..holder.floor_char_boundary(254)]),
            _ => {}
        }
    }

    async fn force(&self, key: &Name, entry: &Entry) -> Result<(), Slot> {
        loop {
            let write = match self.good.get(key).await.unwrap() {
                Slot::Vacant(vacant) => OfVacant(vacant, entry.clone()),
                Slot::Held { entry: stands, .. } => TakeOver(stands, entry.clone()),
            };
            if let Ok(Ok(())) = self.applied(key, &write).await {
                return Ok(());
            }
        }
    }

    fn key(&self, key: &Name) -> Name {
        let mut bytes = key.0.clone();
        match self.fault {
            EndsAKeyAtZero => bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())),
            IgnoresCaseOfKeys => bytes.make_ascii_lowercase(),
            CutsKeys => bytes.truncate(32_000),
            _ => {}
        }
        Name(bytes)
    }

    fn shown(&self, slot: Slot) -> Slot {
        let Slot::Held { entry, .. } = &slot else {
            return if self.fault == ForgetsEpochs { vacant(None) } else { slot };
        };
        let now = SystemClock::read();
        let age = self.shared.memory().since.entry(entry.epoch).or_insert(now).until(now);
        match self.fault {
            GuessesAges => aged(entry.clone(), Duration::from_secs(3600)),
            CountsAgesFromTheClaim => aged(entry.clone(), age),
            LetsRecordsExpire if age >= entry.ttl.get() => vacant(Some(entry.epoch)),
            _ => slot,
        }
    }
}

fn vacant(last_epoch: Option<Epoch>) -> Slot {
    Slot::Vacant(Vacant { last_epoch })
}

fn aged(entry: Entry, age: Duration) -> Slot {
    Slot::Held { entry, proven_age: Some(age) }
}

#[async_trait]
impl TtlStorage<Name> for HostileStorage {
    fn limits(&self) -> Limits {
        let good = self.good.limits();
        if self.fault == NoLimits {
            return Limits { min_ttl: Duration::ZERO, scan_batch: usize::MAX, ..good };
        }
        let max_key_bytes = if self.fault == IgnoresItsLimitOfKeys { 100_000 } else { good.max_key_bytes };
        Limits { max_key_bytes, ..good }
    }

    async fn insert_if_not_exist(
        &self,
        key: &Name,
        vacant: Vacant,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        let outcome = self.write(key, OfVacant(vacant, entry.clone())).await?;
        Ok(outcome.map_or_else(Claim::Refused, |()| Claim::Claimed))
    }

    async fn take_over(&self, key: &Name, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError> {
        let outcome = self.write(key, TakeOver(observed.clone(), entry.clone())).await?;
        Ok(outcome.map_or_else(Claim::Refused, |()| Claim::Claimed))
    }

    async fn compare_and_swap(&self, key: &Name, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let outcome = self.write(key, Renewal(held.clone(), entry.clone())).await?;
        Ok(outcome.map_or_else(Swap::Mismatch, |()| Swap::Swapped))
    }

    async fn compare_and_delete(
        &self,
        key: &Name,
        of: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let outcome = self.write(key, Release(of, epoch)).await?;
        Ok(outcome.map_or_else(Delete::Mismatch, |()| Delete::Deleted))
    }

    async fn get(&self, key: &Name) -> Result<Slot, ReadError> {
        let slot = self.good.get(&self.key(key)).await?;
        let before = self.shared.memory().before.remove(key);
        let own = self.own.lock().unwrap().get(key).cloned();
        let wrong = match self.fault {
            ReadsBehind => before,
            ReadsItsOwnWrites => own,
            _ => None,
        };
        Ok(self.shown(wrong.unwrap_or(slot)))
    }

    async fn scan(&self, keys: &[Name]) -> Result<Vec<Slot>, ReadError> {
        let mut keys: Vec<_> = keys.iter().map(|key| self.key(key)).collect();
        match self.fault {
            ScansInItsOwnOrder => keys.sort(),
            ScansOneBatch => keys.truncate(self.good.limits().scan_batch),
            _ => {}
        }
        let mut slots = self.good.scan(&keys).await?;
        if self.fault == ScanSkipsNewSlots {
            slots.retain(|slot| slot.last_epoch().is_some());
        }
        Ok(slots.into_iter().map(|slot| self.shown(slot)).collect())
    }

    async fn scan_some(&self, keys: &[Name], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        let is_cut = self.fault == ScansOneBatchOfSome;
        let read = if is_cut { keys.len().min(self.limits().scan_batch) } else { keys.len() };
        let slots = self.scan(&keys[..read]).await?;
        seen.iter_mut().zip(slots).for_each(|(seen, slot)| *seen = Some(slot));
        Ok(())
    }

    fn documents(&self) -> Option<&dyn DocumentStorage<Name>> {
        Some(self)
    }

    async fn close(&self) {
        match self.fault {
            ClosesNothing => {}
            ClosesAllHandles => {
                let handles = mem::take(&mut self.shared.memory().handles);
                for handle in handles {
                    handle.close().await;
                }
            }
            ForgetsAllWhenItCloses => {
                self.shared.memory().model = Model::new();
                self.good.close().await;
            }
            _ => self.good.close().await,
        }
    }
}
