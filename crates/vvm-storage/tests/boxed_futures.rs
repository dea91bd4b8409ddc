//! Counts the boxed futures that a renewal passes between the engine and the driver.
//!
//! Each boxed future is a frame on the stack of the driver's poll. Tests are built without optimization, so
//! no frame is missing. The last count, with a layer that is known to add a box, checks that.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "clippy knows tests, but not their helpers")]

use async_trait::async_trait;
use ielections::{
    Candidacy, Entry, Holder, Layer, Swap, Terms, Ttl, TtlStorage, WriteError,
    testing::elections_suite::Process,
};
use std::{num::NonZeroU32, sync::Arc};
use testing_time::MockClock;
use vvm_clock::Clock;
use vvm_storage::{
    ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber,
    mem::MemDatabase,
    testing::{FaultyStorage, Layer as _},
};

/// Changes nothing.
#[derive(Debug)]
struct PassesOn(Arc<dyn TtlStorage<ElectionKey>>);

impl Layer<ElectionKey> for PassesOn {
    fn beneath(&self) -> &dyn TtlStorage<ElectionKey> {
        &*self.0
    }
}

/// Changes renewals.
#[derive(Debug)]
struct Overrides(Arc<dyn TtlStorage<ElectionKey>>);

#[async_trait]
impl Layer<ElectionKey> for Overrides {
    fn beneath(&self) -> &dyn TtlStorage<ElectionKey> {
        &*self.0
    }

    async fn compare_and_swap(
        &self,
        key: &ElectionKey,
        held: &Entry,
        entry: &Entry,
    ) -> Result<Swap, WriteError> {
        self.beneath().compare_and_swap(key, held, entry).await
    }
}

type Wrap = fn(Arc<dyn TtlStorage<ElectionKey>>) -> Arc<dyn TtlStorage<ElectionKey>>;

/// The boxes between the engine and the driver on one renewal, with what `wrap` puts between.
fn boxes_on_a_renewal(wrap: Wrap) -> usize {
    let clock = MockClock::new();
    let time: Arc<dyn Clock> = Arc::new(clock.clone());
    let storage = MemDatabase::new(Arc::clone(&time)).open() as _;
    let traced = FaultyStorage::over(storage);
    let storage = wrap(Arc::new(ElectionsTtlStorage::new(Arc::clone(&traced).into_storage())));
    let idle = clock.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(move || _ = idle.advance_to_next())
        .build()
        .unwrap();
    runtime.block_on(async {
        let process = Process::start(storage, time);
        let slot = SlotNumber::new(NonZeroU32::MIN);
        let key = ElectionKey { cluster: ClusterName::new(*b"payroll"), slot };
        let terms = Terms::new(Holder::new("here").unwrap(), Ttl::DEFAULT);
        let candidacy = Candidacy { slots: vec![key], terms };
        let (_, leadership) = process.elections.acquire(candidacy).await.unwrap();
        while traced.stack().is_empty() {
            clock.sleep(Ttl::DEFAULT.get()).await;
        }
        leadership.release().await;
    });
    let stack = traced.stack();
    let engine = stack.find("EngineTask<K,C> as core::future::future::Future>::poll");
    let between = &stack[..engine.expect("the engine is on the stack")];
    between.matches("poll<alloc::boxed::Box<(dyn core::future::future::Future").count()
}

#[test]
fn renewal_passes_one_boxed_future_and_one_more_for_a_layer_that_changes_it() {
    assert_eq!(boxes_on_a_renewal(|storage| storage), 1, "the driver's own");
    assert_eq!(boxes_on_a_renewal(|storage| Arc::new(PassesOn(storage)).into_storage()), 1);
    assert_eq!(boxes_on_a_renewal(|storage| Arc::new(Overrides(storage)).into_storage()), 2);
}
