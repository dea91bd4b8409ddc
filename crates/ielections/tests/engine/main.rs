//! The engine in mock time: its calls, its end, its load, and the documents of a leadership.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "clippy knows tests, but not their helpers")]

mod calls;
mod documents;
mod ending;
mod load;
mod succession;

use ielections::{
    Candidacy, Holder, Leadership, Terms, Ttl, TtlStorage,
    testing::{Model, elections_suite::Process, in_mock_time as on, mock::FaultyStorage},
};
use std::{sync::Arc, time::Duration};
use testing_time::MockClock;
use vvm_clock::Clock;

struct Bench {
    clock: MockClock,
    faulty: Arc<FaultyStorage<u32>>,
}

const TTL: Duration = Ttl::DEFAULT.get();

const MOST_IN_FLIGHT: usize = 256;

impl Bench {
    fn new() -> Self {
        let clock = MockClock::new();
        let time: Arc<dyn Clock> = Arc::new(clock.clone());
        let faulty = Arc::new(FaultyStorage::new(Model::new().open(), time));
        Self { clock, faulty }
    }

    fn process(&self) -> Process<u32> {
        let storage = Arc::clone(&self.faulty) as Arc<dyn TtlStorage<u32>>;
        Process::start(storage, Arc::new(self.clock.clone()))
    }

    async fn until(&self, seen: impl Fn() -> bool) {
        while !seen() {
            self.clock.sleep(Duration::from_millis(1)).await;
        }
    }
}

fn candidacy(slot: u32) -> Candidacy<u32> {
    Candidacy { slots: vec![slot], terms: Terms::new(Holder::new("leader").unwrap(), Ttl::DEFAULT) }
}

async fn lead(process: &Process<u32>, slot: u32) -> Leadership {
    process.elections.acquire(candidacy(slot)).await.unwrap().1
}
