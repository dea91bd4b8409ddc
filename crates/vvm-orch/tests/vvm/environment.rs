use crate::rig::{Process, run_one};
use ielections::{Spawn, env::Task};
use std::sync::Arc;
use testing_time::MockClock;
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, Instant, Sleep};
use vvm_orch::{NotLeading, Problem, VvmConfig};
use vvm_storage::ElectionKey;

/// A runtime that harms the tasks of one name, or all.
#[derive(Debug)]
pub(crate) struct HarmfulSpawn {
    pub(crate) only: Option<&'static str>,
    pub(crate) harm: Harm,
    pub(crate) others: Arc<dyn Spawn>,
}

#[derive(Debug)]
pub(crate) enum Harm {
    /// As the shutdown of a runtime. Cancelled from the start, the tasks are never polled.
    DropAt(CancellationToken),
    /// Cancels this after the end of a task.
    CancelAfter(CancellationToken),
    /// Instead of starting the task, which is never dropped: a service would report that first.
    Panic,
}

impl Spawn for HarmfulSpawn {
    fn spawn(&self, name: &'static str, task: Task) {
        if self.only.is_some_and(|only| only != name) {
            return self.others.spawn(name, task);
        }
        match &self.harm {
            Harm::DropAt(at) if at.is_cancelled() => {}
            Harm::DropAt(at) => {
                let at = at.clone();
                let until = async move {
                    tokio::select! {
                        // A task is not polled again once it is to be dropped.
                        biased;
                        () = at.cancelled() => {}
                        () = task => {}
                    }
                };
                self.others.spawn(name, Box::pin(until));
            }
            Harm::CancelAfter(token) => {
                let token = token.clone();
                let and_then = async move {
                    task.await;
                    token.cancel();
                };
                self.others.spawn(name, Box::pin(and_then));
            }
            Harm::Panic => {
                std::mem::forget(task);
                panic!("planted in the runtime");
            }
        }
    }
}

fn harmful(process: &Process, only: Option<&'static str>, harm: Harm) -> Arc<dyn Spawn> {
    Arc::new(HarmfulSpawn { only, harm, others: Arc::clone(&process.env.spawn) })
}

fn at_once() -> Harm {
    let at = CancellationToken::new();
    at.cancel();
    Harm::DropAt(at)
}

/// Shows I10.
#[test]
fn waits_end_on_a_runtime_that_drops_all_tasks() {
    run_one(async |_, process| {
        let spawn = harmful(&process, None, at_once());
        let running = process.launch_by(|config| config.spawn = spawn, process.probes(&["a"]));
        let broken = |problem| matches!(problem, Problem::Broken { panic: None });
        assert!(broken(running.problem().await.unwrap()));
        assert!(matches!(running.leading().await, Err(NotLeading::Problem(_))));
        assert!(broken(running.shutdown().await.unwrap_err()));
    });
}

#[test]
fn dropped_service_is_not_proven_to_have_stopped() {
    run_one(async |cluster, process| {
        let spawn = harmful(&process, Some("vvm service"), at_once());
        let running = process.launch_by(|config| config.spawn = spawn, process.probes(&["a", "b"]));
        let refused = running.leading().await.unwrap_err();
        assert!(matches!(refused, NotLeading::Problem(Problem::Dropped { .. })), "{refused:?}");
        assert!(running.shutdown().await.is_err());
        assert!(cluster.record().await.is_some());
        assert!(process.killer.earliest().is_some());
    });
}

#[test]
fn dropped_vvm_cancels_services_and_leaves_the_deadline_armed() {
    run_one(async |cluster, process| {
        let at = CancellationToken::new();
        let spawn = harmful(&process, Some("vvm"), Harm::DropAt(at.clone()));
        let running = process.launch_by(|config| config.spawn = spawn, process.probes(&["a", "b"]));
        running.leading().await.unwrap();
        at.cancel();
        let Err(problem) = running.shutdown().await else { panic!() };
        assert!(matches!(problem, Problem::Broken { panic: None }), "{problem:?}");
        process.journal.shows("a ends", 1).await;
        process.journal.shows("b ends", 1).await;
        assert!(cluster.record().await.is_some());
        assert!(process.killer.earliest().is_some());
    });
}

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

#[test]
fn panic_in_the_vvm_is_a_problem_and_shutdown_returns() {
    type Change = fn(&mut VvmConfig<ElectionKey>, &Process, MockClock);
    let cases: [(Change, &str); 2] = [
        (
            |config, process, _| config.spawn = harmful(process, Some("vvm service"), Harm::Panic),
            "planted in the runtime",
        ),
        (|config, _, clock| config.clock = Arc::new(NeverSleeps(clock)), "planted in the clock"),
    ];
    for (change, text) in cases {
        run_one(async |cluster, process| {
            let change = |config: &mut _| change(config, &process, cluster.clock.clone());
            let running = process.launch_by(change, process.probes(&["a"]));
            drop(running.leading().await);
            let problem = running.shutdown().await.unwrap_err();
            let Problem::Broken { panic: Some(panic) } = problem else { panic!("{problem:?}") };
            assert_eq!(&*panic, text);
        });
    }
}
