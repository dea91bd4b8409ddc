//! Neither a slow scan nor slots that fail or hang keep a candidate from leading a slot that it can read.

use async_trait::async_trait;
use ielections::{
    AcquireTimeout, Candidacy, Holder, Limits, ReadError, Slot, Terms, Ttl, testing::elections_suite::Process,
};
use std::{collections::BTreeSet, future::pending, num::NonZeroU32, sync::Arc, time::Duration};
use testing_time::MockClock;
use vvm_clock::Clock;
use vvm_storage::{
    ElectionKey, ElectionsTtlStorage, Partition, SlotNumber, SysVvmStorage, mem::MemDatabase, testing::Layer,
};

const LATENCY: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Fails,
    Hangs,
}

/// A storage that takes [`LATENCY`] for each read and reads slots one by one, as one on servers does.
#[derive(Debug)]
struct Remote {
    storage: Arc<dyn SysVvmStorage>,
    clock: MockClock,
    /// The numbers of the faulty slots: the last four bytes of their partitions.
    faulty: BTreeSet<[u8; 4]>,
    fault: Fault,
}

#[async_trait]
impl Layer for Remote {
    fn beneath(&self) -> &dyn SysVvmStorage {
        &*self.storage
    }

    fn limits(&self) -> Limits {
        // The batch size of a cluster.
        Limits { scan_batch: 100, ..self.storage.limits() }
    }

    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        self.clock.sleep(LATENCY).await;
        let mut reached = true;
        for (at, seen) in at.iter().zip(seen) {
            if at.as_bytes().last_chunk().is_some_and(|number| self.faulty.contains(number)) {
                reached = false;
            } else {
                *seen = self.storage.peek(std::slice::from_ref(at)).await?.pop();
            }
        }
        match self.fault {
            _ if reached => Ok(()),
            Fault::Fails => Err(ReadError::Unavailable("a replica is gone".into())),
            Fault::Hangs => pending().await,
        }
    }
}

fn keys(slots: u32) -> Vec<ElectionKey> {
    let slots = SlotNumber::all(NonZeroU32::new(slots).unwrap());
    slots.map(|slot| ElectionKey { cluster: "payroll".into(), slot }).collect()
}

fn on(clock: &MockClock, fault: Fault, faulty: &[ElectionKey]) -> ElectionsTtlStorage {
    let storage = MemDatabase::new(Arc::new(clock.clone())).open();
    let faulty = faulty.iter().map(|key| key.slot.get().get().to_be_bytes()).collect();
    let remote = Remote { storage, clock: clock.clone(), faulty, fault };
    ElectionsTtlStorage::new(Arc::new(remote).into_storage())
}

fn in_mock_time(test: impl AsyncFnOnce(MockClock)) {
    let clock = MockClock::new();
    ielections::testing::in_mock_time(&clock, test(clock.clone()));
}

async fn time_to_lead(clock: &MockClock, storage: ElectionsTtlStorage, slots: u32) -> (Duration, u32) {
    let process = Process::start(Arc::new(storage), Arc::new(clock.clone()));
    let began = clock.now();
    let mut terms = Terms::new(Holder::new("candidate").unwrap(), Ttl::DEFAULT);
    terms.timeout = AcquireTimeout::Forever;
    let candidacy = Candidacy { slots: keys(slots), terms };
    let (key, leadership) = process.elections.acquire(candidacy).await.unwrap();
    let took = clock.now().since(began);
    leadership.release().await;
    (took, key.slot.get().get())
}

#[test]
fn candidate_for_100_000_slots_with_5_ms_latency_leads_within_2_s() {
    in_mock_time(async |clock| {
        let storage = on(&clock, Fault::Fails, &[]);
        let (took, _) = time_to_lead(&clock, storage, 100_000).await;
        assert!(took < Duration::from_secs(2), "{took:?}");
    });
}

#[test]
fn candidate_leads_the_one_slot_that_can_be_read_and_does_not_hang() {
    // Slot 100 is the only one. The others are in all batches, and a hanging one uses up one attempt.
    for (fault, within) in [(Fault::Fails, 2), (Fault::Hangs, 3)] {
        in_mock_time(async |clock| {
            let all = keys(250);
            let faulty = [&all[..99], &all[100..]].concat();
            let (took, slot) = time_to_lead(&clock, on(&clock, fault, &faulty), 250).await;
            assert_eq!((took < Duration::from_secs(within), slot), (true, 100), "{fault:?}: {took:?}");
        });
    }
}
