use super::ElectionsTestSuite;
use crate::{
    AcquireError, AcquireTimeout, Candidacy, Elections, Entry, Env, Epoch, Holder, Key, Leadership,
    OsEntropy, Slot, Spawn, Standing, Terms, Timing, Ttl, TtlStorage,
    env::Task,
    testing::{
        contract::StorageUnderTest,
        lateness::{always, never_allowed, two_lead},
        mock::FaultyStorage,
    },
};
use futures_util::future::{Either, select};
use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{runtime::Handle, task::AbortHandle};
use vvm_clock::{Clock, Instant, SystemClock, SystemWallClock};
use vvm_deadman::{Deadman, recording::RecordingTrigger};

/// A new storage, and the clock of the case.
#[derive(Debug)]
pub struct Scene<Suite> {
    pub(super) suite: Suite,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ttl: Ttl,
    pub(super) timing: Timing,
    pub(super) slack: Duration,
}

impl<Suite: ElectionsTestSuite> Scene<Suite> {
    pub(super) fn on(suite: Suite) -> Self {
        let ttl = suite.ttl();
        let (clock, slack): (Arc<dyn Clock>, _) = match suite.mock_clock() {
            Some(clock) => (Arc::new(clock), Duration::from_millis(1)),
            None => (Arc::new(SystemClock::start().unwrap()), ttl.get()),
        };
        Self { suite, clock, ttl, timing: Timing::new(ttl), slack }
    }

    pub(super) fn key(&self, number: u32) -> <Suite as StorageUnderTest>::Key {
        self.suite.key(format!("slot {number}").as_bytes())
    }

    pub(super) async fn process(&self) -> Process<Suite::Key> {
        Process::start(self.suite.open().await, Arc::clone(&self.clock))
    }

    pub(super) async fn faulty(&self) -> (Process<Suite::Key>, Arc<FaultyStorage<Suite::Key>>) {
        let storage = FaultyStorage::new(self.suite.open().await, Arc::clone(&self.clock));
        let storage = Arc::new(storage);
        (Process::start(Arc::clone(&storage) as _, Arc::clone(&self.clock)), storage)
    }

    pub(super) async fn faulty_leader(
        &self,
    ) -> (Process<Suite::Key>, Arc<FaultyStorage<Suite::Key>>, Leadership) {
        let (process, storage) = self.faulty().await;
        let leadership = self.lead(&process, "leader").await;
        (process, storage, leadership)
    }

    pub(super) fn candidacy(&self, holder: &str) -> Candidacy<Suite::Key> {
        self.patient(holder, AcquireTimeout::Forever)
    }

    pub(super) fn patient(&self, holder: &str, timeout: AcquireTimeout) -> Candidacy<Suite::Key> {
        let terms = Terms { timeout, ..self.terms(holder) };
        Candidacy { slots: vec![self.key(0)], terms }
    }

    pub(super) fn terms(&self, holder: &str) -> Terms {
        Terms::new(Holder::new(holder).unwrap(), self.ttl)
    }

    /// The longest time between two reads of a candidate.
    pub(super) fn poll(&self) -> Duration {
        self.terms("candidate").poll
    }

    pub(super) async fn lead(&self, process: &Process<Suite::Key>, holder: &str) -> Leadership {
        process.elections.acquire(self.candidacy(holder)).await.unwrap().1
    }

    pub(super) async fn slot(&self) -> Slot {
        self.slot_of(0).await
    }

    pub(super) async fn slot_of(&self, number: u32) -> Slot {
        let storage = self.suite.open().await;
        let slot = storage.get(&self.key(number)).await.unwrap();
        storage.close().await;
        slot
    }

    pub(super) fn foreign_record(&self, after: Epoch) -> Entry {
        Entry {
            holder: Holder::new("stranger").unwrap(),
            version: crate::Version { incarnation: crate::Incarnation::from_bytes([0x5a; 16]), write: 0 },
            ttl: self.ttl,
            epoch: Epoch::new(after.get() + 1).unwrap(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(super) fn percent(&self, of_ttl: u32) -> Duration {
        self.ttl.get() * of_ttl / 100
    }

    pub(super) async fn pass(&self, span: Duration) {
        self.clock.sleep(span).await;
    }

    pub(super) async fn until(&self, mut seen: impl FnMut() -> bool) {
        while !seen() {
            self.pass(self.ttl.get() / 500).await;
        }
    }

    /// Checks that it is not earlier than `at`: no late machine explains that.
    #[track_caller]
    pub(super) fn not_before(&self, at: Instant, what: &str) {
        let now = self.now();
        if now < at {
            never_allowed(format!("{what}, {:?} too early", now.until(at)));
        }
    }

    /// Checks that `next` does not lead within `span`. It may if `leadership` is lost, which only a late machine explains.
    pub(super) async fn leads_alone(
        &self,
        leadership: &Leadership,
        next: impl Future + Unpin,
        span: Duration,
    ) {
        if !self.waits(next, span).await {
            two_lead("two leaders", [leadership.remaining()]);
        }
    }

    pub(super) async fn waits(&self, future: impl Future + Unpin, span: Duration) -> bool {
        match select(future, pin!(self.pass(span))).await {
            Either::Left(_) => false,
            Either::Right(_) => true,
        }
    }

    /// When the last confirmed write was sent, from which every deadline counts (I3).
    pub(super) fn sent_at(&self, standing: &Standing, ttl: Ttl) -> Instant {
        let kill_after = Timing::new(ttl).kill_at(Instant::ORIGIN).since(Instant::ORIGIN);
        standing.kill_at().before(kill_after)
    }
}

pub(super) fn none_landed<K: Key>(storage: &FaultyStorage<K>) {
    let counts = storage.counts();
    always(counts.landed_late == 0, format_args!("a write was applied when it was out of date: {counts:?}"));
}

pub(super) fn refusal<K>(acquired: Result<(K, Leadership), AcquireError>) -> AcquireError {
    match acquired {
        Ok((_, leadership)) => panic!("led under {:?}", leadership.epoch()),
        Err(error) => error,
    }
}

/// A simulated process. Dropping it is no crash: its leaderships continue until they are handed back.
#[derive(Debug)]
pub struct Process<K: Key> {
    /// Its elections.
    pub elections: Elections<K>,
    /// Its deadlines.
    pub deadman: Deadman,
    /// Records that its deadline has passed.
    pub trigger: Arc<RecordingTrigger>,
    tasks: Arc<Tasks>,
}

impl<K: Key> Process<K> {
    /// A process on this handle of a storage, on the current tokio runtime.
    pub fn start(storage: Arc<dyn TtlStorage<K>>, clock: Arc<dyn Clock>) -> Self {
        let trigger = RecordingTrigger::on(Arc::clone(&clock));
        let deadman = Deadman::with_trigger(Arc::clone(&trigger) as _);
        let tasks = Arc::new(Tasks { runtime: Handle::current(), spawned: Mutex::default() });
        let env = Env {
            clock,
            wall: Arc::new(SystemWallClock),
            deadman: deadman.clone(),
            entropy: Arc::new(OsEntropy::default()),
            spawn: Arc::clone(&tasks) as _,
        };
        Self { elections: Elections::new(storage, env), deadman, trigger, tasks }
    }

    /// Drops every task before it runs again, as a crash does. No record is released.
    pub fn crash(&self) {
        self.tasks.spawned().iter().for_each(AbortHandle::abort);
    }

    /// The number of tasks that have not ended (I9).
    pub fn tasks(&self) -> usize {
        self.tasks.spawned().iter().filter(|task| !task.is_finished()).count()
    }
}

#[derive(Debug)]
struct Tasks {
    runtime: Handle,
    spawned: Mutex<Vec<AbortHandle>>,
}

impl Tasks {
    fn spawned(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        self.spawned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spawn for Tasks {
    fn spawn(&self, _name: &'static str, task: Task) {
        let task = self.runtime.spawn(task);
        self.spawned().push(task.abort_handle());
    }
}
