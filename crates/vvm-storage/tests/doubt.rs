//! A hundred thousand ambiguous outcomes at the seam of the drivers: elections whose every second write is
//! answered with "unknown", applied or not, and which must neither lead twice nor wait out a record of their
//! own.
//!
//! The storage is `mem` without its proofs of age, so that a candidate that does not recognise its own record
//! waits for it, as it would on a cluster. Reads are answered, and nothing lands late: that is `ielections`'
//! own suites' to try.
#![cfg(feature = "mem")]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use async_trait::async_trait;
use fastrand::Rng;
use ielections::{
    Candidacy, Claim, Delete, Entry, Epoch, Holder, Incarnation, Leadership, ReadError, Slot, Swap, Terms,
    Timing, Ttl, WriteError, testing::elections_suite::Process,
};
use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, Mutex},
};
use testing_time::MockClock;
use tokio::{runtime::Builder, task::JoinSet};
use vvm_clock::{Clock, Instant};
use vvm_deadman::recording::RecordingTrigger;
use vvm_storage::{
    ElectionKey, ElectionsTtlStorage, Partition, SlotNumber, SysVvmStorage, mem::MemDatabase, testing::Layer,
};

const AMBIGUOUS: u64 = 100_000;
const CONTENDERS: u64 = 6;
const SLOTS: NonZeroU32 = NonZeroU32::new(4).unwrap();

/// What happened, in the whole world.
#[derive(Default)]
struct World {
    applied: u64,
    refused: u64,
    never_sent: u64,
    taken_over: u64,
    leaderships: u64,
    /// What a contender did that it must not do. Written down: a driver that panics is one that does not
    /// answer.
    waited_out: Option<Epoch>,
    /// By slot: who led last, and until when it may act.
    last: HashMap<SlotNumber, Led>,
}

impl World {
    fn ambiguous(&self) -> u64 {
        self.applied + self.refused + self.never_sent
    }
}

struct Led {
    epoch: Epoch,
    trigger: Arc<RecordingTrigger>,
    ended: Option<Instant>,
}

impl Led {
    fn acts_until(&self) -> Instant {
        let deadline = || self.trigger.earliest().map_or(Instant::NEVER, |(at, _)| at);
        self.ended.unwrap_or_else(deadline)
    }
}

/// The storage of one contender.
struct Doubtful {
    storage: Arc<dyn SysVvmStorage>,
    clock: MockClock,
    world: Arc<Mutex<World>>,
    dice: Mutex<Rng>,
    /// The claims of the campaign that goes on, and when each was sent.
    own: Mutex<HashMap<Incarnation, Instant>>,
}

impl Doubtful {
    /// `write`, and what the contender hears of it.
    async fn write<T>(
        &self,
        applied: impl Fn(&T) -> bool,
        write: impl Future<Output = Result<T, WriteError>>,
    ) -> Result<T, WriteError> {
        let (in_doubt, is_sent) = {
            let mut dice = self.dice.lock().unwrap();
            (dice.bool(), dice.bool())
        };
        if !in_doubt {
            return write.await;
        }
        let unknown = Err(WriteError::Unknown("forged".into()));
        if !is_sent {
            self.world.lock().unwrap().never_sent += 1;
            return unknown;
        }
        let applied = applied(&write.await?);
        let mut world = self.world.lock().unwrap();
        *(if applied { &mut world.applied } else { &mut world.refused }) += 1;
        unknown
    }
}

/// As a cluster shows it.
fn ageless(slot: Slot) -> Slot {
    match slot {
        Slot::Held { entry, .. } => Slot::Held { entry, proven_age: None },
        vacant @ Slot::Vacant(_) => vacant,
    }
}

impl std::fmt::Debug for Doubtful {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Doubtful({:?})", self.storage)
    }
}

#[async_trait]
impl Layer for Doubtful {
    fn beneath(&self) -> &dyn SysVvmStorage {
        &*self.storage
    }

    async fn claim(&self, at: Partition, from: &Slot, entry: &Entry) -> Result<Claim, WriteError> {
        {
            let mut own = self.own.lock().unwrap();
            if let Some(observed) = from.entry() {
                let mut world = self.world.lock().unwrap();
                world.taken_over += 1;
                if own.contains_key(&observed.incarnation()) {
                    world.waited_out = Some(observed.epoch);
                }
            }
            own.insert(entry.incarnation(), self.clock.now());
        }
        let claim = self.storage.claim(at, from, entry);
        match self.write(|claim| *claim == Claim::Claimed, claim).await? {
            Claim::Claimed => Ok(Claim::Claimed),
            Claim::Refused(slot) => Ok(Claim::Refused(ageless(slot))),
        }
    }

    async fn renew(&self, at: Partition, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        match self.write(|swap| *swap == Swap::Swapped, self.storage.renew(at, held, entry)).await? {
            Swap::Swapped => Ok(Swap::Swapped),
            Swap::Mismatch(slot) => Ok(Swap::Mismatch(ageless(slot))),
        }
    }

    async fn release(
        &self,
        at: Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let release = self.storage.release(at, incarnation, epoch);
        self.write(|delete| *delete == Delete::Deleted, release).await
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.storage.read(at).await.map(ageless)
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        Ok(self.storage.peek(at).await?.into_iter().map(ageless).collect())
    }
}

struct Contender {
    number: u64,
    storage: Arc<Doubtful>,
    clock: MockClock,
    world: Arc<Mutex<World>>,
    dice: Rng,
}

impl Contender {
    async fn live(mut self) {
        while self.goes_on() {
            let storage = ElectionsTtlStorage::new(Arc::clone(&self.storage).into_storage());
            let process = Process::start(Arc::new(storage), Arc::new(self.clock.clone()));
            while self.goes_on() && self.takes_a_turn(&process).await {}
            process.crash();
        }
    }

    fn goes_on(&self) -> bool {
        let world = self.world.lock().unwrap();
        world.ambiguous() < AMBIGUOUS && world.waited_out.is_none()
    }

    /// Whether the process lives on.
    async fn takes_a_turn(&mut self, process: &Process<ElectionKey>) -> bool {
        let slots =
            SlotNumber::all(SLOTS).map(|slot| ElectionKey { cluster: "doubt".into(), slot }).collect();
        let terms = Terms::new(Holder::new(format!("contender-{}", self.number)).unwrap(), Ttl::DEFAULT);
        self.storage.own.lock().unwrap().clear();
        let (key, leadership) = process.elections.acquire(Candidacy { slots, terms }).await.unwrap();
        self.begins(&key, &leadership, process);
        let turn = Ttl::DEFAULT.get().mul_f64(self.dice.f64());
        let loss = tokio::select! {
            biased;
            loss = leadership.lost() => Some(loss),
            () = self.clock.sleep(turn) => None,
        };
        // In a world where only answers are lost, records are safe.
        assert!(!loss.as_ref().is_some_and(|loss| loss.is_mismatch()), "{loss:?}");
        let crashes = self.dice.u8(..20) == 0;
        let now = self.clock.now();
        if let Some(led) = self.world.lock().unwrap().last.get_mut(&key.slot) {
            led.ended = Some(led.acts_until().min(now));
        }
        if crashes {
            process.crash();
            drop(leadership);
            return false;
        }
        leadership.release().await;
        true
    }

    fn begins(&self, key: &ElectionKey, leadership: &Leadership, process: &Process<ElectionKey>) {
        let claim_sent_at = self.storage.own.lock().unwrap()[&leadership.incarnation()];
        // Only waiting takes time here: a candidate that waited for its own record would be late.
        let late = claim_sent_at.until(self.clock.now());
        assert!(late < Timing::of(Ttl::DEFAULT).attempt_timeout(), "recognised {late:?} after its claim");
        let mut world = self.world.lock().unwrap();
        world.leaderships += 1;
        let led = Led { epoch: leadership.epoch(), trigger: Arc::clone(&process.trigger), ended: None };
        if let Some(before) = world.last.insert(key.slot, led) {
            assert!(before.acts_until() <= claim_sent_at, "slot {}: two leaders", key.slot);
            assert!(before.epoch < leadership.epoch(), "slot {}: an epoch that falls", key.slot);
        }
    }
}

/// Shows I7.
#[test]
fn a_hundred_thousand_ambiguous_outcomes_and_no_leadership_twice() {
    let clock = MockClock::new();
    let database = MemDatabase::new(Arc::new(clock.clone()));
    let world = Arc::new(Mutex::new(World::default()));
    let idle = clock.clone();
    let runtime = Builder::new_current_thread().on_thread_park(move || _ = idle.advance_to_next()).build();
    runtime.unwrap().block_on(async {
        let mut contenders = JoinSet::new();
        for number in 0..CONTENDERS {
            let doubtful = Doubtful {
                storage: database.open(),
                clock: clock.clone(),
                world: Arc::clone(&world),
                dice: Mutex::new(Rng::with_seed(number)),
                own: Mutex::default(),
            };
            let contender = Contender {
                number,
                storage: Arc::new(doubtful),
                clock: clock.clone(),
                world: Arc::clone(&world),
                dice: Rng::with_seed(!number),
            };
            contenders.spawn(contender.live());
        }
        // A panic of one of them is ours.
        contenders.join_all().await;
    });
    let world = world.lock().unwrap();
    let World { applied, refused, never_sent, taken_over, leaderships, .. } = &*world;
    println!(
        "{leaderships} leaderships, {taken_over} claims of dead leaders' records; ambiguous: {applied} \
         applied, {refused} refused, {never_sent} never sent"
    );
    assert_eq!(world.waited_out, None, "a live record, by its own holder");
    assert!(world.ambiguous() >= AMBIGUOUS);
    assert!(*applied >= AMBIGUOUS / 3 && *never_sent >= AMBIGUOUS / 3 && *refused > 0);
    assert!(*taken_over > 1000 && *leaderships > 10_000);
}
