//! [`compare_steps`]: random steps on a driver, compared with [`decide`](crate::decide).

use crate::{
    drivers::mem::MemDatabase,
    key::{ClusterName, ElectionKey, Partition, SlotNumber},
    step::{Done, Shown, Step},
    sysvvm::SysVvmStorage,
};
use ielections::{
    DocumentId, DocumentVersion, DocumentWrite, Entry, Epoch, Fence, FenceState, Holder, Incarnation, OnlyIf,
    Scan, Slot, Ttl, Vacant, Version, WriteError,
};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use vvm_clock::SystemClock;

/// Few, so that steps meet.
const SLOTS: NonZeroU32 = NonZeroU32::new(2).unwrap();
const IDS: [&str; 3] = ["a", "a\0", "\u{7f}"];

/// Commits random steps to a driver, and to a storage in memory, which does what [`decide`](crate::decide)
/// says. Compares each outcome, and each state that a read shows. About half of the steps are refused.
///
/// `open` opens a handle; handles are closed and opened anew between steps. `name` is a cluster that the
/// storage does not have yet. `seed` selects the steps.
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
    let mut draw = Draw { state: seed | 1, min_ttl: driver.limits().min_ttl, number: 0 };
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
        if expected == Done::Applied {
            seen[slot].note(&step);
        }
        compare_states(&*driver, &*memory, &slots, &setting, &about).await;
    }
    driver.close().await;
}

/// The outcome without ages. A driver may not know which call stored a setting.
fn outcome(step: &Step, done: Result<Done, WriteError>) -> Done {
    match (step, done.unwrap()) {
        (Step::Settle { value }, Done::Refused(Shown::Setting(stands))) if stands == *value => Done::Applied,
        (_, Done::Refused(Shown::Slot(slot))) => Done::Refused(without_age(slot).into()),
        (_, done) => done,
    }
}

fn without_age(slot: Slot) -> Slot {
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
        let listed = listed.iter().filter(|listed| *listed == setting).count();
        assert_eq!(listed, usize::from(expected.is_some()), "{about}");
    }
}

/// The former states of a slot.
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

/// Draws steps as candidates and leaders send them, early, late and twice.
struct Draw {
    state: u64,
    min_ttl: Duration,
    /// Of the step: no two steps write one version.
    number: u64,
}

impl Draw {
    /// The generator xorshift64.
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
                let fence = Fence { epoch: record.epoch, incarnation: record.incarnation(), after };
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
            ttl: Ttl::new(self.min_ttl * (1 + self.below(3) as u32)).unwrap(),
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
