//! A process that stands still during a storage call: observation counts from the arrival of the answer (I5).

use async_trait::async_trait;
use ielections::{
    Candidacy, Claim, Delete, Elections, Entry, Env, Epoch, Holder, Incarnation, Limits, OsEntropy,
    ReadError, Slot, Swap, Terms, TokioSpawn, Ttl, TtlStorage, Vacant, Version, WriteError,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use testing_time::{MockClock, MockWallClock};
use vvm_clock::{Clock, Instant, WallClock};
use vvm_deadman::{Deadman, Subject, Trigger};

const LONGER_THAN_A_TTL: Duration = Duration::from_secs(25);

/// Shows the record of another leader. During the first scan this process stands still, and the record is
/// renewed meanwhile.
#[derive(Debug)]
struct StandsStill {
    clock: MockClock,
    stood_still: AtomicBool,
    renewed: Entry,
}

#[async_trait]
impl TtlStorage<u8> for StandsStill {
    fn limits(&self) -> Limits {
        Limits { min_ttl: Ttl::MIN, max_key_bytes: 1, max_value_bytes: 1 << 10, scan_batch: 1 }
    }

    async fn insert_if_not_exist(&self, _: &u8, _: Vacant, _: &Entry) -> Result<Claim, WriteError> {
        Ok(Claim::Refused(self.slot()))
    }

    async fn take_over(&self, _: &u8, _: &Entry, _: &Entry) -> Result<Claim, WriteError> {
        Ok(Claim::Claimed)
    }

    async fn compare_and_swap(&self, _: &u8, _: &Entry, _: &Entry) -> Result<Swap, WriteError> {
        Ok(Swap::Swapped)
    }

    async fn compare_and_delete(&self, _: &u8, _: Incarnation, _: Epoch) -> Result<Delete, WriteError> {
        Ok(Delete::Deleted)
    }

    async fn get(&self, _: &u8) -> Result<Slot, ReadError> {
        Ok(self.slot())
    }

    async fn scan(&self, _: &[u8]) -> Result<Vec<Slot>, ReadError> {
        if !self.stood_still.swap(true, Ordering::Relaxed) {
            self.clock.advance(LONGER_THAN_A_TTL);
        }
        Ok(vec![self.slot()])
    }

    async fn close(&self) {}
}

impl StandsStill {
    fn slot(&self) -> Slot {
        Slot::Held { entry: self.renewed.clone(), proven_age: None }
    }
}

/// Deadlines are on the clock of the test, and have no effect.
#[derive(Debug)]
struct OnlyTells(MockClock);

impl Trigger for OnlyTells {
    fn set_earliest(&self, _: Option<(Instant, &Subject)>) -> io::Result<()> {
        Ok(())
    }

    fn now(&self) -> Instant {
        self.0.now()
    }
}

#[test]
fn observation_counts_from_the_answer_of_a_call_during_which_the_process_stood_still() {
    let clock = MockClock::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park({
            let clock = clock.clone();
            move || _ = clock.advance_to_next()
        })
        .build()
        .unwrap();
    let renewed = Entry {
        holder: Holder::new("leader else").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([7; 16]), write: 3 },
        ttl: Ttl::DEFAULT,
        epoch: Epoch::new(1).unwrap(),
    };
    let storage =
        Arc::new(StandsStill { clock: clock.clone(), stood_still: AtomicBool::new(false), renewed });
    let env = Env {
        clock: Arc::new(clock.clone()),
        wall: Arc::new(MockWallClock::default()) as Arc<dyn WallClock>,
        deadman: Deadman::with_trigger(Arc::new(OnlyTells(clock.clone()))),
        entropy: Arc::new(OsEntropy::default()),
        spawn: Arc::new(TokioSpawn::on(runtime.handle().clone())),
    };
    let elections = Elections::new(storage, env);
    let terms = Terms::new(Holder::new("candidate").unwrap(), Ttl::DEFAULT);
    runtime.block_on(async {
        let (_, leadership) = elections.acquire(Candidacy { slots: vec![1], terms }).await.unwrap();
        let waited = clock.now().since(Instant::ORIGIN);
        assert!(waited >= LONGER_THAN_A_TTL + Ttl::DEFAULT.get(), "taken over after {waited:?}");
        leadership.release().await;
    });
}
