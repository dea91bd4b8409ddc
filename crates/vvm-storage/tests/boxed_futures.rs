//! How many boxed futures a renewal passes between the engine and the driver.
//!
//! Counted on the stack of the driver's poll, where each boxed future is a frame. Tests are built without
//! optimization, so that no frame is missing: the last count, with a layer that is known to add a box, would
//! show it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "clippy knows tests, but not their helpers")]

use async_trait::async_trait;
use ielections::{
    Candidacy, Claim, Delete, Entry, Epoch, Holder, Incarnation, Layer, Limits, ReadError, Slot, Swap, Terms,
    Ttl, TtlStorage, WriteError, testing::elections_suite::Process,
};
use std::{
    backtrace::Backtrace,
    num::NonZeroU32,
    sync::{Arc, Mutex},
};
use testing_time::MockClock;
use vvm_clock::Clock;
use vvm_storage::{
    ClusterName, ElectionKey, ElectionsTtlStorage, Partition, SlotNumber, SysVvmStorage, mem::MemDatabase,
};

/// A driver that takes down the stack on which its renewals are polled.
#[derive(Debug)]
struct Traced {
    storage: Arc<dyn SysVvmStorage>,
    stacks: Mutex<Vec<String>>,
}

#[async_trait]
impl SysVvmStorage for Traced {
    fn limits(&self) -> Limits {
        self.storage.limits()
    }

    fn shared_between_processes(&self) -> bool {
        false
    }

    async fn claim(&self, at: Partition, from: &Slot, entry: &Entry) -> Result<Claim, WriteError> {
        self.storage.claim(at, from, entry).await
    }

    async fn renew(&self, at: Partition, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        self.stacks.lock().unwrap().push(Backtrace::force_capture().to_string());
        self.storage.renew(at, held, entry).await
    }

    async fn release(
        &self,
        at: Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        self.storage.release(at, incarnation, epoch).await
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.storage.read(at).await
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        self.storage.peek(at).await
    }

    async fn settle(&self, at: Partition, value: &[u8]) -> Result<Vec<u8>, WriteError> {
        self.storage.settle(at, value).await
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.storage.setting(at).await
    }

    async fn close(&self) {
        self.storage.close().await;
    }
}

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
    let traced = Arc::new(Traced { storage, stacks: Mutex::default() });
    let storage = wrap(Arc::new(ElectionsTtlStorage::new(Arc::clone(&traced) as _)));
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
        while traced.stacks.lock().unwrap().is_empty() {
            clock.sleep(Ttl::DEFAULT.get()).await;
        }
        leadership.release().await;
    });
    let stacks = traced.stacks.lock().unwrap();
    let engine = stacks[0].find("EngineTask<K,C> as core::future::future::Future>::poll");
    let between = &stacks[0][..engine.expect("the engine is on the stack")];
    between.matches("poll<alloc::boxed::Box<(dyn core::future::future::Future").count()
}

#[test]
fn renewal_passes_one_boxed_future_and_one_more_for_a_layer_that_changes_it() {
    assert_eq!(boxes_on_a_renewal(|storage| storage), 1, "the driver's own");
    assert_eq!(boxes_on_a_renewal(|storage| Arc::new(PassesOn(storage)).into_storage()), 1);
    assert_eq!(boxes_on_a_renewal(|storage| Arc::new(Overrides(storage)).into_storage()), 2);
}
