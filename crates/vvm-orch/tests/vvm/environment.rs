//! Failures of the runtime and the clock.

use crate::{
    rig::{Cluster, Probe, Process, TTL, run},
    tasks::Journal,
};
use ielections::{Spawn, env::Task};
use std::sync::Arc;
use testing_time::MockClock;
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant, Sleep};
use vvm_orch::{AcquireTimeout, NotLeading, Problem, RunningVvm, Vvm, VvmConfig};
use vvm_storage::ElectionKey;

/// Drops the tasks of one name, or all, as the shutdown of a runtime does.
#[derive(Debug)]
pub(crate) struct Dropping {
    pub(crate) only: Option<&'static str>,
    /// Cancelled to drop the tasks. If it is cancelled from the start, they are never polled.
    pub(crate) at: CancellationToken,
    pub(crate) others: Arc<dyn Spawn>,
}

impl Spawn for Dropping {
    fn spawn(&self, name: &'static str, task: Task) {
        if self.only.is_some_and(|only| only != name) {
            self.others.spawn(name, task);
        } else if !self.at.is_cancelled() {
            let at = self.at.clone();
            let until = async move {
                tokio::select! {
                    biased;
                    () = at.cancelled() => {}
                    () = task => {}
                }
            };
            self.others.spawn(name, Box::pin(until));
        }
    }
}

fn launch_on(process: &Process, spawn: Dropping, journal: &Journal) -> RunningVvm<ElectionKey> {
    let mut config = VvmConfig::new(vec![Cluster::key()], process.holder.clone(), &process.env);
    config.spawn = Arc::new(spawn);
    let services = ["a", "b"].map(|name| Probe::new(name, journal).boxed()).into();
    Vvm::provide(config, Arc::clone(&process.elections), services).launch(TTL, AcquireTimeout::Forever)
}

fn dropping_at_once(process: &Process, only: Option<&'static str>) -> Dropping {
    let at = CancellationToken::new();
    at.cancel();
    Dropping { only, at, others: Arc::clone(&process.env.spawn) }
}

/// Shows I10.
#[test]
fn waits_end_on_a_runtime_that_drops_all_tasks() {
    run(async |cluster| {
        let process = cluster.process("leader");
        let running = launch_on(&process, dropping_at_once(&process, None), &Journal::default());
        let broken = |problem| matches!(problem, Problem::Broken { panic: None });
        assert!(broken(running.problem().await.unwrap()));
        assert!(matches!(running.leading().await, Err(NotLeading::Problem(_))));
        assert!(broken(running.shutdown().await.unwrap_err()));
    });
}

#[test]
fn dropped_service_is_not_proven_to_have_stopped() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let running = launch_on(&process, dropping_at_once(&process, Some("vvm service")), &journal);
        let refused = running.leading().await.unwrap_err();
        assert!(matches!(refused, NotLeading::Problem(Problem::Dropped { .. })), "{refused:?}");
        assert!(running.shutdown().await.is_err());
        assert!(cluster.record().await.is_some());
        assert!(process.killer.earliest().is_some());
    });
}

#[test]
fn dropped_vvm_cancels_services_and_leaves_the_deadline_armed() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let at = CancellationToken::new();
        let others = Arc::clone(&process.env.spawn);
        let dropping = Dropping { only: Some("vvm"), at: at.clone(), others };
        let running = launch_on(&process, dropping, &journal);
        running.leading().await.unwrap();
        at.cancel();
        let Err(problem) = running.shutdown().await else { panic!() };
        assert!(matches!(problem, Problem::Broken { panic: None }), "{problem:?}");
        journal.shows("a ends", 1).await;
        journal.shows("b ends", 1).await;
        // It has not joined them.
        assert!(cluster.record().await.is_some());
        assert!(process.killer.earliest().is_some());
    });
}

/// A clock that panics on `sleep_until`.
#[derive(Debug)]
struct NeverSleeps(MockClock);

impl Clock for NeverSleeps {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn sleep_until(&self, _: Instant) -> Sleep {
        panic!("planted in the clock")
    }
}

/// Waits for the problem before it calls `shutdown`.
pub(crate) async fn by_itself(running: RunningVvm<ElectionKey>) -> Result<(), Problem> {
    running.problem().await;
    running.shutdown().await
}

/// Panics instead of starting a task of this name.
#[derive(Debug)]
struct NeverSpawns {
    name: &'static str,
    others: Arc<dyn Spawn>,
}

impl Spawn for NeverSpawns {
    fn spawn(&self, name: &'static str, task: Task) {
        assert_ne!(name, self.name, "planted in the runtime");
        self.others.spawn(name, task);
    }
}

/// Launches a VVM with a changed configuration, and shuts it down. Returns its problem.
async fn problem_of(process: &Process, change: impl FnOnce(&mut VvmConfig<ElectionKey>)) -> Problem {
    let mut config = VvmConfig::new(vec![Cluster::key()], process.holder.clone(), &process.env);
    change(&mut config);
    let probe = Probe::new("a", &Journal::default()).boxed();
    let vvm = Vvm::provide(config, process.elections.clone(), vec![probe]);
    let running = vvm.launch(TTL, AcquireTimeout::Forever);
    drop(running.leading().await);
    running.shutdown().await.unwrap_err()
}

#[test]
fn panic_in_the_launcher_is_a_problem_and_shutdown_returns() {
    run(async |cluster| {
        let process = cluster.process("leader");
        let others = Arc::clone(&process.env.spawn);
        let spawn = Arc::new(NeverSpawns { name: "vvm service", others });
        let problem = problem_of(&process, |config| config.spawn = spawn).await;
        // The panic drops the task that was not started.
        assert!(matches!(problem, Problem::Dropped { .. }), "{problem:?}");
    });
}

#[test]
fn panic_in_the_shutdowner_is_a_problem_and_shutdown_returns() {
    run(async |cluster| {
        let process = cluster.process("leader");
        let clock = Arc::new(NeverSleeps(cluster.clock.clone()));
        let problem = problem_of(&process, |config| config.clock = clock).await;
        let Problem::Broken { panic: Some(panic) } = problem else { panic!("{problem:?}") };
        assert_eq!(&*panic, "planted in the clock");
    });
}
