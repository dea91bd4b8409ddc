//! What is injected fails: a runtime that is gone, elections that panic.

use crate::{
    probe::{Journal, Probe},
    rig::{Cluster, Process, TTL, run},
};
use async_trait::async_trait;
use futures_util::future::poll_immediate;
use ielections::{AcquireError, Candidacy, Elections, Leadership, Spawn, env::Task};
use std::{sync::Arc, time::Duration};
use testing_time::MockClock;
use tokio_util::sync::CancellationToken;
use vvm_clock::Clock;
use vvm_orch::{Acquisition, NotLeading, Problem, RunningVvm, Vvm, VvmConfig};
use vvm_storage::ElectionKey;

/// Drops the tasks of one name, or all, as a runtime does that is shut down.
#[derive(Debug)]
pub(crate) struct Dropping {
    pub(crate) only: Option<&'static str>,
    /// When. A token that is cancelled from the start drops tasks before their first poll.
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
    Vvm::provide(config, Arc::clone(&process.elections), services).launch(TTL, Acquisition::DEFAULT)
}

fn dropping_at_once(process: &Process, only: Option<&'static str>) -> Dropping {
    let at = CancellationToken::new();
    at.cancel();
    Dropping { only, at, others: Arc::clone(&process.env.spawn) }
}

#[test]
fn on_a_runtime_that_is_gone_nothing_waits_for_ever() {
    run(async |cluster| {
        let process = cluster.process("leader");
        let running = launch_on(&process, dropping_at_once(&process, None), &Journal::default());
        let broken = |problem| matches!(problem, Problem::Broken { task: "vvm shutdowner", panic: None });
        assert!(broken(running.problem().await.unwrap()));
        assert!(matches!(running.leading().await, Err(NotLeading::Problem(_))));
        assert!(broken(running.shutdown().await.unwrap_err()));
    });
}

#[test]
fn a_launcher_that_was_dropped_is_a_problem() {
    run(async |cluster| {
        let process = cluster.process("leader");
        let running =
            launch_on(&process, dropping_at_once(&process, Some("vvm launcher")), &Journal::default());
        let problem = running.problem().await.unwrap();
        assert!(matches!(problem, Problem::Broken { task: "vvm launcher", panic: None }), "{problem:?}");
        assert!(running.shutdown().await.is_err());
        process.leaves_nothing(&cluster).await;
    });
}

#[test]
fn a_service_that_was_dropped_is_not_proven_to_have_stopped() {
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
fn a_shutdowner_that_is_dropped_tells_the_services_and_leaves_the_deadline_armed() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let at = CancellationToken::new();
        let others = Arc::clone(&process.env.spawn);
        let dropping = Dropping { only: Some("vvm shutdowner"), at: at.clone(), others };
        let running = launch_on(&process, dropping, &journal);
        running.leading().await.unwrap();
        at.cancel();
        let Err(problem) = running.shutdown().await else { panic!() };
        assert!(matches!(problem, Problem::Broken { task: "vvm shutdowner", panic: None }), "{problem:?}");
        journal.shows("a ends").await;
        journal.shows("b ends").await;
        // Nobody has joined them.
        assert!(cluster.record().await.is_some());
        assert!(process.killer.earliest().is_some());
    });
}

/// Polls the leadership monitor once a second.
#[derive(Debug)]
struct SlowMonitor {
    clock: MockClock,
    others: Arc<dyn Spawn>,
}

impl Spawn for SlowMonitor {
    fn spawn(&self, name: &'static str, mut task: Task) {
        if name != "vvm leadership monitor" {
            return self.others.spawn(name, task);
        }
        let clock = self.clock.clone();
        let slowly = async move {
            while poll_immediate(&mut task).await.is_none() {
                clock.sleep(Duration::from_secs(1)).await;
            }
        };
        self.others.spawn(name, Box::pin(slowly));
    }
}

#[test]
fn shutdown_waits_for_the_monitor_too() {
    run(async |cluster| {
        let process = cluster.process("leader");
        let mut config = VvmConfig::new(vec![Cluster::key()], process.holder.clone(), &process.env);
        let others = Arc::clone(&process.env.spawn);
        config.spawn = Arc::new(SlowMonitor { clock: cluster.clock.clone(), others });
        let running =
            Vvm::provide(config, process.elections.clone(), vec![]).launch(TTL, Acquisition::DEFAULT);
        running.leading().await.unwrap();
        // Handing back, before the monitor has stopped, would look like a loss to it.
        running.shutdown().await.unwrap();
        assert!(!process.tasks.alive().contains_key("vvm leadership monitor"));
    });
}

#[derive(Debug)]
struct Panicking {
    in_acquire: bool,
}

#[async_trait]
impl Elections<ElectionKey> for Panicking {
    async fn acquire(&self, _: Candidacy<ElectionKey>) -> Result<(ElectionKey, Leadership), AcquireError> {
        assert!(!self.in_acquire, "acquire gave up");
        Err(AcquireError::Closing)
    }

    fn look_now(&self) {}

    async fn cleanup(&self) {
        assert!(self.in_acquire, "cleanup gave up");
    }
}

/// Waits for the problem before it calls `shutdown`.
pub(crate) async fn by_itself(running: RunningVvm<ElectionKey>) -> Result<(), Problem> {
    running.problem().await;
    running.shutdown().await
}

#[test]
fn elections_that_panic_are_a_problem_and_take_nobody_down() {
    run(async |cluster| {
        let process = cluster.process("leader");
        let launch = |in_acquire| {
            let config = VvmConfig::new(vec![Cluster::key()], process.holder.clone(), &process.env);
            Vvm::provide(config, Arc::new(Panicking { in_acquire }), vec![]).launch(TTL, Acquisition::Forever)
        };
        let Err(Problem::Broken { task, panic }) = by_itself(launch(true)).await else { panic!() };
        assert_eq!((task, panic.as_deref()), ("vvm launcher", Some("acquire gave up")));

        let running = launch(false);
        // The first problem wins; that `shutdown` returns at all is the point.
        assert!(matches!(by_itself(running).await, Err(Problem::NotAcquired(_))));
    });
}
