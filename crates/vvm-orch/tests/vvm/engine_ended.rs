//! The elections' task ends while the VVM leads: the kill deadline can't be disarmed, and the problem says
//! so.

use crate::{
    environment::{Dropping, by_itself},
    probe::{Journal, Probe},
    rig::{Cluster, Process, TTL, run},
};
use ielections::{Elections, Env, Loss, Spawn, env::Task};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use vvm_orch::{Acquisition, Problem, Vvm, VvmConfig};

/// Returns a process, and a token that ends its elections' task.
fn process(cluster: &Cluster) -> (Process, CancellationToken) {
    let mut process = cluster.process("leader");
    let at = CancellationToken::new();
    let others = Arc::clone(&process.env.spawn);
    let spawn = Arc::new(Dropping { only: Some("elections"), at: at.clone(), others });
    process.elections = Arc::new(Elections::new(
        Arc::clone(&process.storage) as Arc<_>,
        Env { spawn, ..process.env.clone() },
    ));
    (process, at)
}

/// Shows I4.
#[test]
fn end_of_the_elections_task_stops_services_and_leaves_the_deadline_armed() {
    run(async |cluster| {
        let journal = Journal::default();
        let (process, at) = process(&cluster);
        let running = process.launch(vec![Probe::new("a", &journal).boxed()]);
        let led = running.leading().await.unwrap();
        at.cancel();
        let Err(problem) = by_itself(running).await else { panic!() };
        assert!(matches!(problem, Problem::Lost(Loss::EngineEnded)), "{problem:?}");
        assert!(problem.to_string().contains("ends at the kill deadline"), "{problem}");
        assert_eq!(journal.lines().last().unwrap(), "a ends");
        assert_eq!(process.killer.earliest().unwrap().0, led.standing.kill_at());
        assert!(cluster.record().await.is_some());
        cluster.reach(led.standing.kill_at()).await;
        assert_eq!(process.killer.fired().len(), 1);
    });
}

/// Cancels a token when the leadership monitor has ended.
#[derive(Debug)]
struct EndsWithTheMonitor {
    at: CancellationToken,
    others: Arc<dyn Spawn>,
}

impl Spawn for EndsWithTheMonitor {
    fn spawn(&self, name: &'static str, task: Task) {
        let at = self.at.clone();
        let and_then = async move {
            task.await;
            if name == "vvm leadership monitor" {
                at.cancel();
            }
        };
        self.others.spawn(name, Box::pin(and_then));
    }
}

#[test]
fn end_of_the_elections_task_after_the_monitor_is_a_problem() {
    run(async |cluster| {
        let (process, at) = process(&cluster);
        let mut config = VvmConfig::new(vec![Cluster::key()], process.holder.clone(), &process.env);
        config.spawn = Arc::new(EndsWithTheMonitor { at, others: Arc::clone(&process.env.spawn) });
        let running =
            Vvm::provide(config, Arc::clone(&process.elections), vec![]).launch(TTL, Acquisition::DEFAULT);
        running.leading().await.unwrap();
        let Err(problem) = running.shutdown().await else {
            panic!("the deadline is armed, and no problem says so")
        };
        assert!(matches!(problem, Problem::Lost(Loss::EngineEnded)), "{problem:?}");
        assert!(process.killer.earliest().is_some());
    });
}
