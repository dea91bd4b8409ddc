//! A cluster in memory, and services with planned behaviour.

use crate::tasks::{CountingSpawn, Journal};
use async_trait::async_trait;
use ielections::{
    Elections, Entry, Env, Holder, Key, Slot, Spawn, Ttl, TtlStorage,
    testing::{self, in_mock_time, mock::FaultyStorage},
};
use std::{future::pending, sync::Arc, time::Duration};
use testing_time::MockClock;
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant, Sleep};
use vvm_deadman::{Deadman, Subject, recording::RecordingTrigger};
use vvm_orch::{AcquireTimeout, BoxError, RunningVvm, Service, ServiceContext, Vvm, VvmConfig, Work};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber, mem::MemDatabase};

pub(crate) type Services = Vec<Box<dyn Service<ElectionKey>>>;

pub(crate) const TTL: Ttl = Ttl::DEFAULT;

pub(crate) fn run<Test: Future<Output = ()>>(test: impl FnOnce(Cluster) -> Test) {
    let cluster = Cluster::new();
    in_mock_time(&cluster.clock.clone(), test(cluster));
}

pub(crate) fn run_one<Test: Future<Output = ()>>(test: impl FnOnce(Cluster, Process) -> Test) {
    run(async |cluster| {
        let process = cluster.process("leader");
        test(cluster, process).await;
    });
}

pub(crate) struct Cluster {
    pub(crate) clock: MockClock,
    database: Arc<MemDatabase>,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let clock = MockClock::starting_at(Instant::from_nanos(1_000_000_000));
        let database = MemDatabase::new(Arc::new(clock.clone()));
        Self { clock, database }
    }

    pub(crate) fn key() -> ElectionKey {
        ElectionKey { cluster: "tests".into(), slot: SlotNumber::FIRST }
    }

    pub(crate) async fn record(&self) -> Option<Entry> {
        match ElectionsTtlStorage::new(self.database.open()).get(&Self::key()).await.unwrap() {
            Slot::Held { entry, .. } => Some(entry),
            Slot::Vacant(_) => None,
        }
    }

    pub(crate) fn sleep(&self, seconds: u64) -> Sleep {
        self.clock.sleep(Duration::from_secs(seconds))
    }

    pub(crate) fn reach(&self, instant: Instant) -> Sleep {
        self.clock.sleep_until(instant)
    }

    pub(crate) fn seconds_since(&self, earlier: Instant) -> f64 {
        self.clock.now().since(earlier).as_secs_f64()
    }

    pub(crate) fn process(&self, name: &str) -> Process {
        let storage: Arc<dyn TtlStorage<_>> = Arc::new(ElectionsTtlStorage::new(self.database.open()));
        self.process_on(name, FaultyStorage::new(storage, Arc::new(self.clock.clone())))
    }

    pub(crate) fn process_on<S: TtlStorage<ElectionKey>>(&self, name: &str, storage: S) -> Process<S> {
        let storage = Arc::new(storage);
        let killer = RecordingTrigger::on(Arc::new(self.clock.clone()));
        let tasks = Arc::new(CountingSpawn::default());
        let env = Env {
            deadman: Deadman::with_trigger(killer.clone()),
            spawn: Arc::clone(&tasks) as Arc<dyn Spawn>,
            ..testing::env(&self.clock)
        };
        let elections = Arc::new(Elections::new(Arc::clone(&storage) as Arc<dyn TtlStorage<_>>, env.clone()));
        let (holder, stop_timeout) = (Holder::new(name).unwrap(), Duration::from_secs(8));
        Process { holder, stop_timeout, storage, env, elections, killer, tasks, journal: Journal::default() }
    }
}

pub(crate) struct Process<S = FaultyStorage<ElectionKey>> {
    pub(crate) holder: Holder,
    pub(crate) stop_timeout: Duration,
    pub(crate) storage: Arc<S>,
    pub(crate) env: Env,
    pub(crate) elections: Arc<Elections<ElectionKey>>,
    pub(crate) killer: Arc<RecordingTrigger>,
    pub(crate) tasks: Arc<CountingSpawn>,
    pub(crate) journal: Journal,
}

impl<S> Process<S> {
    pub(crate) fn launch(&self, services: Services) -> RunningVvm<ElectionKey> {
        self.launch_by(|_| {}, services)
    }

    pub(crate) fn launch_by(
        &self,
        change: impl FnOnce(&mut VvmConfig<ElectionKey>),
        services: Services,
    ) -> RunningVvm<ElectionKey> {
        let mut config = VvmConfig::new(vec![Cluster::key()], self.holder.clone(), &self.env);
        config.stop_timeout = self.stop_timeout;
        change(&mut config);
        let vvm = Vvm::provide(config, Arc::clone(&self.elections), services);
        vvm.launch(TTL, AcquireTimeout::Forever)
    }

    pub(crate) fn probe(&self, name: &str) -> Probe {
        Probe {
            name: name.into(),
            journal: self.journal.clone(),
            start: Act::End(Ok(())),
            work: Act::EndOnStop(Ok(())),
        }
    }

    pub(crate) fn probes(&self, names: &[&str]) -> Services {
        names.iter().map(|name| self.probe(name).boxed()).collect()
    }

    pub(crate) fn fired(&self) -> Vec<(Instant, Subject)> {
        self.killer.check();
        self.killer.fired()
    }

    pub(crate) fn is_disarmed(&self) -> bool {
        self.fired().is_empty() && self.killer.earliest().is_none()
    }

    /// Waits until no task and no timer is left (I9), but for that of the test. For clusters with only this process.
    pub(crate) async fn leaves_nothing(&self, cluster: &Cluster) {
        self.tasks.all_end().await;
        assert_eq!(cluster.clock.sleepers(), 1);
    }
}

/// A service with planned behaviour. Unless told otherwise, it starts at once and works until cancellation.
pub(crate) struct Probe {
    name: String,
    journal: Journal,
    start: Act,
    work: Act,
}

pub(crate) enum Act {
    End(Result<(), &'static str>),
    EndOnStop(Result<(), &'static str>),
    /// Ends when the test cancels the token, and ignores `stop`.
    EndAt(CancellationToken, Result<(), &'static str>),
    EndSlowly(MockClock, Duration),
    PanicAt(CancellationToken),
    PanicOnStop,
    Refuse,
}

impl Probe {
    pub(crate) fn start(self, start: Act) -> Self {
        Self { start, ..self }
    }

    pub(crate) fn work(self, work: Act) -> Self {
        Self { work, ..self }
    }

    pub(crate) fn boxed<K: Key>(self) -> Box<dyn Service<K>> {
        Box::new(self)
    }
}

impl Act {
    async fn play(self, name: &str, journal: &Journal, stop: CancellationToken) -> Result<(), BoxError> {
        let told = async {
            stop.cancelled().await;
            journal.write(format!("{name} is cancelled"));
        };
        match self {
            Self::End(result) => Ok(result?),
            Self::EndOnStop(result) => {
                told.await;
                Ok(result?)
            }
            Self::EndAt(go, result) => {
                go.cancelled().await;
                Ok(result?)
            }
            Self::EndSlowly(clock, span) => {
                told.await;
                clock.sleep(span).await;
                Ok(())
            }
            Self::PanicAt(go) => {
                go.cancelled().await;
                panic!("{name} has had enough")
            }
            Self::PanicOnStop => {
                told.await;
                panic!("{name} does not like to stop")
            }
            Self::Refuse => {
                told.await;
                pending().await
            }
        }
    }
}

#[async_trait]
impl<K: Key> Service<K> for Probe {
    fn name(&self) -> &str {
        &self.name
    }

    async fn start(self: Box<Self>, cx: ServiceContext<K>) -> Result<Work, BoxError> {
        let Self { name, journal, start, work } = *self;
        journal.write(format!("{name} starts"));
        start.play(&name, &journal, cx.stop.clone()).await?;
        journal.write(format!("{name} is ready"));
        Ok(Box::pin(async move {
            let result = work.play(&name, &journal, cx.stop).await;
            journal.write(format!("{name} ends"));
            result
        }))
    }
}
