//! What is injected fails: a runtime that is gone, elections that panic.

use crate::{
    probe::{Journal, Probe},
    rig::{Cluster, Process, TTL, run},
};
use async_trait::async_trait;
use ielections::{AcquireError, Candidacy, Elections, Leadership, Spawn, env::Task};
use std::sync::Arc;
use vvm_orch::{Acquisition, NotLeading, Problem, RunningVvm, Vvm, VvmConfig};
use vvm_storage::ElectionKey;

/// Drops tasks, as a runtime does that was shut down: all of them, or those of one name.
#[derive(Debug)]
struct Dropping {
    only: Option<&'static str>,
    others: Arc<dyn Spawn>,
}

impl Spawn for Dropping {
    fn spawn(&self, name: &'static str, task: Task) {
        if self.only.is_none_or(|only| only == name) {
            drop(task);
        } else {
            self.others.spawn(name, task);
        }
    }
}

fn launch_dropping(
    process: &Process,
    only: Option<&'static str>,
    journal: &Journal,
) -> RunningVvm<ElectionKey> {
    let mut config = VvmConfig::new(vec![Cluster::key()], process.holder.clone(), &process.env);
    config.spawn = Arc::new(Dropping { only, others: Arc::clone(&process.env.spawn) });
    let services = ["a", "b"].map(|name| Probe::new(name, journal).boxed()).into();
    Vvm::provide(config, Arc::clone(&process.elections), services).launch(TTL, Acquisition::DEFAULT)
}

#[test]
fn on_a_runtime_that_is_gone_nothing_waits_for_ever() {
    run(async |cluster| {
        let process = cluster.process("leader");
        let running = launch_dropping(&process, None, &Journal::default());
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
        let running = launch_dropping(&process, Some("vvm launcher"), &Journal::default());
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
        let running = launch_dropping(&process, Some("vvm service"), &journal);
        let refused = running.leading().await.unwrap_err();
        assert!(matches!(refused, NotLeading::Problem(Problem::Dropped { .. })), "{refused:?}");
        assert!(running.shutdown().await.is_err());
        assert!(cluster.record().await.is_some());
        assert!(process.killer.earliest().is_some());
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

    async fn cleanup(&self) {
        assert!(self.in_acquire, "cleanup gave up");
    }
}

/// Waits for the problem before it calls `shutdown`.
async fn by_itself(running: RunningVvm<ElectionKey>) -> Result<(), Problem> {
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
