//! A cluster in memory. Its clock moves only when all tasks are idle, so that every run of a test is the
//! same.

use ielections::{
    Elections, Entropy, Entry, Env, Holder, Slot, Spawn, Ttl, TtlStorage, env::Task,
    testing::mock::FaultyStorage,
};
use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use testing_time::{MockClock, MockWallClock};
use tokio::sync::Notify;
use vvm_clock::{Clock, Instant, Sleep};
use vvm_deadman::{Deadman, recording::RecordingTrigger};
use vvm_orch::{Acquisition, RunningVvm, Service, Vvm, VvmConfig};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber, mem::MemDatabase};

pub(crate) type Services = Vec<Box<dyn Service<ElectionKey>>>;

pub(crate) const TTL: Ttl = Ttl::DEFAULT;

/// Runs a test on one thread. Time passes only while all tasks wait.
pub(crate) fn run<Test: Future<Output = ()>>(test: impl FnOnce(Cluster) -> Test) {
    let cluster = Cluster::new();
    let (clock, killers) = (cluster.clock.clone(), Arc::clone(&cluster.killers));
    let limit = clock.now().after(Duration::from_secs(3600));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(move || {
            let next = clock.advance_to_next();
            assert!(next.is_some_and(|now| now < limit), "the test waits for what does not happen");
            killers.lock().unwrap().iter().for_each(|killer| _ = killer.check());
        })
        .build()
        .unwrap();
    runtime.block_on(test(cluster));
}

/// Slots in one storage.
pub(crate) struct Cluster {
    pub(crate) clock: MockClock,
    database: Arc<MemDatabase>,
    killers: Arc<Mutex<Vec<Arc<RecordingTrigger>>>>,
}

impl Cluster {
    fn new() -> Self {
        let clock = MockClock::starting_at(Instant::from_nanos(1_000_000_000));
        let database = MemDatabase::new(Arc::new(clock.clone()));
        Self { clock, database, killers: Arc::default() }
    }

    /// Returns the key of the first slot.
    pub(crate) fn key() -> ElectionKey {
        ElectionKey { cluster: "tests".into(), slot: SlotNumber::new(NonZeroU32::MIN) }
    }

    /// Returns the record of the first slot.
    pub(crate) async fn record(&self) -> Option<Entry> {
        match ElectionsTtlStorage::new(self.database.open()).get(&Self::key()).await.unwrap() {
            Slot::Held { entry, .. } => Some(entry),
            Slot::Vacant(_) => None,
        }
    }

    pub(crate) fn sleep(&self, seconds: u64) -> Sleep {
        self.clock.sleep(Duration::from_secs(seconds))
    }

    /// Waits until this instant.
    pub(crate) fn reach(&self, instant: Instant) -> Sleep {
        self.clock.sleep_until(instant)
    }

    pub(crate) fn seconds_since(&self, earlier: Instant) -> f64 {
        self.clock.now().since(earlier).as_secs_f64()
    }

    /// Returns a process of the cluster.
    pub(crate) fn process(&self, name: &str) -> Process {
        let storage: Arc<dyn TtlStorage<_>> = Arc::new(ElectionsTtlStorage::new(self.database.open()));
        let storage = Arc::new(FaultyStorage::new(storage, Arc::new(self.clock.clone())));
        let killer = RecordingTrigger::on(Arc::new(self.clock.clone()));
        self.killers.lock().unwrap().push(Arc::clone(&killer));
        let tasks = Arc::new(CountingSpawn::default());
        let env = Env {
            clock: Arc::new(self.clock.clone()),
            wall: Arc::new(MockWallClock::new()),
            deadman: Deadman::with_trigger(killer.clone()),
            entropy: Arc::new(Seeded(AtomicU64::new(name.bytes().map(u64::from).sum()))),
            spawn: Arc::clone(&tasks) as Arc<dyn Spawn>,
        };
        let elections = Arc::new(Elections::new(Arc::clone(&storage) as Arc<dyn TtlStorage<_>>, env.clone()));
        Process {
            holder: Holder::new(name).unwrap(),
            start_timeout: None,
            stop_timeout: Duration::from_secs(8),
            storage,
            env,
            elections,
            killer,
            tasks,
        }
    }
}

/// One process.
pub(crate) struct Process {
    pub(crate) holder: Holder,
    pub(crate) start_timeout: Option<Duration>,
    pub(crate) stop_timeout: Duration,
    pub(crate) storage: Arc<FaultyStorage<ElectionKey>>,
    pub(crate) env: Env,
    pub(crate) elections: Arc<Elections<ElectionKey>>,
    pub(crate) killer: Arc<RecordingTrigger>,
    pub(crate) tasks: Arc<CountingSpawn>,
}

impl Process {
    pub(crate) fn vvm(&self, services: Services) -> Vvm<ElectionKey> {
        let mut config = VvmConfig::new(vec![Cluster::key()], self.holder.clone(), &self.env);
        config.start_timeout = self.start_timeout;
        config.stop_timeout = self.stop_timeout;
        Vvm::provide(config, Arc::clone(&self.elections), services)
    }

    pub(crate) fn launch(&self, services: Services) -> RunningVvm<ElectionKey> {
        self.vvm(services).launch(TTL, Acquisition::DEFAULT)
    }

    /// Waits until no task and no timer is left (I9). For clusters with only this process.
    pub(crate) async fn leaves_nothing(&self, cluster: &Cluster) {
        self.tasks.all_end().await;
        assert_eq!(cluster.clock.sleepers(), 0);
    }
}

/// Counts the tasks that have not ended, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct CountingSpawn {
    alive: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    change: Change,
}

impl CountingSpawn {
    pub(crate) fn alive(&self) -> BTreeMap<&'static str, usize> {
        self.alive.lock().unwrap().clone()
    }

    /// Waits until no task is left (I9).
    pub(crate) async fn all_end(&self) {
        self.only_these_are_left(&[]).await;
    }

    /// Waits until exactly these numbers of tasks are left.
    pub(crate) async fn only_these_are_left(&self, tasks: &[(&'static str, usize)]) {
        self.change.until(|| self.alive() == tasks.iter().copied().collect()).await;
    }
}

impl Spawn for CountingSpawn {
    fn spawn(&self, name: &'static str, task: Task) {
        *self.alive.lock().unwrap().entry(name).or_default() += 1;
        drop(tokio::spawn(Counted { name, tasks: self.clone(), task: Some(task) }));
    }
}

struct Counted {
    name: &'static str,
    tasks: CountingSpawn,
    task: Option<Task>,
}

impl Future for Counted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.task.as_mut().map_or(Poll::Ready(()), |task| task.as_mut().poll(cx))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // The task drops first, so that everything it signals precedes the change of the count.
        drop(self.task.take());
        {
            let mut alive = self.tasks.alive.lock().unwrap();
            let count = alive.entry(self.name).or_default();
            *count -= 1;
            if *count == 0 {
                alive.remove(self.name);
            }
        }
        self.tasks.change.happened();
    }
}

/// Wakes tasks that wait for a condition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change(Arc<Notify>);

impl Change {
    pub(crate) fn happened(&self) {
        self.0.notify_waiters();
    }

    pub(crate) async fn until(&self, condition: impl Fn() -> bool) {
        loop {
            let change = self.0.notified();
            if condition() {
                return;
            }
            change.await;
        }
    }
}

/// Deterministic random numbers.
#[derive(Debug)]
struct Seeded(AtomicU64);

impl Entropy for Seeded {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            // The increment and the mixing of splitmix64.
            let seed = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            chunk.copy_from_slice(&(mixed ^ (mixed >> 27)).to_le_bytes()[..chunk.len()]);
        }
    }
}
