//! Candidates on a storage that answers every second write with "unknown", applied or not. They must never
//! lead twice, and never wait for the TTL of a record of their own.
//!
//! The storage is `mem` without proven ages, so that a candidate that does not recognize its own record waits
//! for it, as on a cluster. All reads are answered, and no write lands late; the suites of `ielections` test
//! these.

use async_trait::async_trait;
use fastrand::Rng;
use ielections::{
    Candidacy, Epoch, Holder, Incarnation, Leadership, ReadError, Slot, Terms, Timing, Ttl, WriteError,
    testing::elections_suite::Process,
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
    Done, ElectionKey, ElectionsTtlStorage, Partition, Shown, SlotNumber, Step, SysVvmStorage,
    mem::MemDatabase,
    testing::{Layer, without_age},
};

const AMBIGUOUS: u64 = 100_000;
const CANDIDATES: u64 = 6;
const SLOTS: NonZeroU32 = NonZeroU32::new(4).unwrap();

/// What all candidates have done.
#[derive(Default)]
struct Tally {
    applied: u64,
    refused: u64,
    never_sent: u64,
    taken_over: u64,
    leaderships: u64,
    /// The epoch of a candidate's own record that it took over. Checked at the end of the test, because a
    /// panic in the driver would count as an answer that never came.
    own_record_taken_over: Option<Epoch>,
    /// The last leader of each slot, and until when it can act.
    last: HashMap<SlotNumber, LastLeader>,
}

impl Tally {
    fn ambiguous(&self) -> u64 {
        self.applied + self.refused + self.never_sent
    }
}

struct LastLeader {
    epoch: Epoch,
    trigger: Arc<RecordingTrigger>,
    ended: Option<Instant>,
}

impl LastLeader {
    fn acts_until(&self) -> Instant {
        let deadline = || self.trigger.earliest().map_or(Instant::NEVER, |(at, _)| at);
        self.ended.unwrap_or_else(deadline)
    }
}

/// The storage of one candidate.
struct AmbiguousStorage {
    storage: Arc<dyn SysVvmStorage>,
    clock: MockClock,
    tally: Arc<Mutex<Tally>>,
    rng: Mutex<Rng>,
    /// The claims of the present campaign, and when each was sent.
    own: Mutex<HashMap<Incarnation, Instant>>,
}

impl std::fmt::Debug for AmbiguousStorage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "AmbiguousStorage({:?})", self.storage)
    }
}

#[async_trait]
impl Layer for AmbiguousStorage {
    fn beneath(&self) -> &dyn SysVvmStorage {
        &*self.storage
    }

    /// Carries the step out or not, and answers every second time with "unknown".
    async fn commit(&self, at: Partition, step: Step) -> Result<Done, WriteError> {
        if let Step::Claim { from, to } = &step {
            let mut own = self.own.lock().unwrap();
            if let Some(observed) = from.entry() {
                let mut tally = self.tally.lock().unwrap();
                tally.taken_over += 1;
                if own.contains_key(&observed.incarnation()) {
                    tally.own_record_taken_over = Some(observed.epoch);
                }
            }
            own.insert(to.incarnation(), self.clock.now());
        }
        let (is_ambiguous, is_sent) = {
            let mut rng = self.rng.lock().unwrap();
            (rng.bool(), rng.bool())
        };
        let unknown = Err(WriteError::Unknown("forged".into()));
        if is_ambiguous && !is_sent {
            self.tally.lock().unwrap().never_sent += 1;
            return unknown;
        }
        let done = self.storage.commit(at, step).await?;
        if is_ambiguous {
            let mut tally = self.tally.lock().unwrap();
            *(if done == Done::Applied { &mut tally.applied } else { &mut tally.refused }) += 1;
            return unknown;
        }
        Ok(match done {
            Done::Refused(Shown::Slot(stands)) => Done::Refused(without_age(stands).into()),
            done => done,
        })
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.storage.read(at).await.map(without_age)
    }

    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        self.storage.peek_some(at, seen).await?;
        seen.iter_mut().for_each(|slot| *slot = slot.take().map(without_age));
        Ok(())
    }
}

struct Candidate {
    number: u64,
    storage: Arc<AmbiguousStorage>,
    clock: MockClock,
    tally: Arc<Mutex<Tally>>,
    rng: Rng,
}

impl Candidate {
    async fn run(mut self) {
        while self.continues() {
            let storage = ElectionsTtlStorage::new(Arc::clone(&self.storage).into_storage());
            let process = Process::start(Arc::new(storage), Arc::new(self.clock.clone()));
            while self.continues() && self.leads_once(&process).await {}
            process.crash();
        }
    }

    fn continues(&self) -> bool {
        let tally = self.tally.lock().unwrap();
        tally.ambiguous() < AMBIGUOUS && tally.own_record_taken_over.is_none()
    }

    /// Acquires and ends one leadership. `false` if the process crashed.
    async fn leads_once(&mut self, process: &Process<ElectionKey>) -> bool {
        let slots =
            SlotNumber::all(SLOTS).map(|slot| ElectionKey { cluster: "ambiguous".into(), slot }).collect();
        let terms = Terms::new(Holder::new(format!("candidate-{}", self.number)).unwrap(), Ttl::DEFAULT);
        self.storage.own.lock().unwrap().clear();
        let (key, leadership) = process.elections.acquire(Candidacy { slots, terms }).await.unwrap();
        self.check_begin(&key, &leadership, process);
        let turn = Ttl::DEFAULT.get().mul_f64(self.rng.f64());
        let loss = tokio::select! {
            biased;
            loss = leadership.lost() => Some(loss),
            () = self.clock.sleep(turn) => None,
        };
        // Only answers are lost, so no record changes under its leader.
        assert!(!loss.as_ref().is_some_and(|loss| loss.is_mismatch()), "{loss:?}");
        let crashes = self.rng.u8(..20) == 0;
        let now = self.clock.now();
        if let Some(led) = self.tally.lock().unwrap().last.get_mut(&key.slot) {
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

    fn check_begin(&self, key: &ElectionKey, leadership: &Leadership, process: &Process<ElectionKey>) {
        let claim_sent_at = self.storage.own.lock().unwrap()[&leadership.incarnation()];
        // Only waiting takes time here, so a candidate that waited for its own record would be late.
        let late = claim_sent_at.until(self.clock.now());
        assert!(late < Timing::of(Ttl::DEFAULT).attempt_timeout(), "recognised {late:?} after its claim");
        let mut tally = self.tally.lock().unwrap();
        tally.leaderships += 1;
        let led =
            LastLeader { epoch: leadership.epoch(), trigger: Arc::clone(&process.trigger), ended: None };
        if let Some(before) = tally.last.insert(key.slot, led) {
            assert!(before.acts_until() <= claim_sent_at, "slot {}: two leaders", key.slot);
            assert!(before.epoch < leadership.epoch(), "slot {}: the epoch does not rise", key.slot);
        }
    }
}

/// Shows I7.
#[test]
fn candidates_with_100_000_ambiguous_writes_never_lead_at_once() {
    let clock = MockClock::new();
    let database = MemDatabase::new(Arc::new(clock.clone()));
    let tally = Arc::new(Mutex::new(Tally::default()));
    let idle = clock.clone();
    let runtime = Builder::new_current_thread().on_thread_park(move || _ = idle.advance_to_next()).build();
    runtime.unwrap().block_on(async {
        let mut candidates = JoinSet::new();
        for number in 0..CANDIDATES {
            let storage = AmbiguousStorage {
                storage: database.open(),
                clock: clock.clone(),
                tally: Arc::clone(&tally),
                rng: Mutex::new(Rng::with_seed(number)),
                own: Mutex::default(),
            };
            let candidate = Candidate {
                number,
                storage: Arc::new(storage),
                clock: clock.clone(),
                tally: Arc::clone(&tally),
                rng: Rng::with_seed(!number),
            };
            candidates.spawn(candidate.run());
        }
        // Passes on a panic of a candidate.
        candidates.join_all().await;
    });
    let tally = tally.lock().unwrap();
    let Tally { applied, refused, never_sent, taken_over, leaderships, .. } = &*tally;
    println!(
        "{leaderships} leaderships, {taken_over} claims of crashed leaders' records; ambiguous: {applied} \
         applied, {refused} refused, {never_sent} never sent"
    );
    assert_eq!(tally.own_record_taken_over, None, "a candidate took over its own record");
    assert!(tally.ambiguous() >= AMBIGUOUS);
    assert!(*applied >= AMBIGUOUS / 3 && *never_sent >= AMBIGUOUS / 3 && *refused > 0);
    assert!(*taken_over > 1000 && *leaderships > 10_000);
}
