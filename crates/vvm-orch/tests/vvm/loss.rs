use crate::{
    environment::{Harm, HarmfulSpawn},
    rig::{Act, Cluster, Process, TTL, run, run_one},
};
use async_trait::async_trait;
use ielections::{
    Elections, Env, Loss, Slot, Standing, Swap, Timing, Vacant,
    testing::{
        MockTtlStorage,
        mock::{Fault, Verb},
    },
};
use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};
use testing_time::MockClock;
use tokio_util::sync::CancellationToken;
use vvm_clock::Clock;
use vvm_orch::{BoxError, NotLeading, Problem, Service, ServiceContext, Work};
use vvm_storage::ElectionKey;

fn deposed(cluster: &Cluster) -> Process<MockTtlStorage<ElectionKey>> {
    let mut storage = MockTtlStorage::vacant();
    storage.expect_compare_and_swap().returning(|_, held, _| {
        let last_epoch = Some(held.epoch);
        Ok(Swap::Mismatch(Slot::Vacant(Vacant { last_epoch })))
    });
    cluster.process_on("leader", storage)
}

#[test]
fn loss_stops_the_services_at_once() {
    run_one(async |cluster, process| {
        let running = process.launch(process.probes(&["a", "b"]));
        let led = running.leading().await.unwrap();
        process.storage.fail_always(Verb::CompareAndSwap, Fault::NotApplied);
        let Some(Problem::Lost(Loss::StorageUnreachable { .. })) = running.problem().await else { panic!() };
        let lost_at = cluster.clock.now();
        process.journal.shows("a ends", 1).await;
        assert_eq!(cluster.clock.now(), lost_at, "the services were not cancelled at once");
        assert_eq!(process.journal.lines()[4..], ["b is cancelled", "b ends", "a is cancelled", "a ends"]);
        assert!(lost_at < led.standing.kill_at());
        assert!(matches!(running.leading().await, Err(NotLeading::Problem(Problem::Lost(_)))));
        process.leaves_nothing(&cluster).await;
        assert!(process.is_disarmed());
        assert_eq!(cluster.record().await, None);
    });
}

/// Sees a loss in the turn after the one that made it: the shutdowner has not run by then.
struct Watchful {
    clock: MockClock,
    in_start: bool,
    result: Result<(), &'static str>,
}

impl Watchful {
    async fn notices(&self, standing: &Standing) -> Result<(), BoxError> {
        self.clock.sleep_until(Timing::new(TTL).loss_at(standing.renewed_at())).await;
        let sees = |cx: &mut Context<'_>| {
            cx.waker().wake_by_ref();
            if standing.loss().is_some() { Poll::Ready(()) } else { Poll::Pending }
        };
        poll_fn(sees).await;
        Ok(self.result?)
    }
}

#[async_trait]
impl Service<ElectionKey> for Watchful {
    fn name(&self) -> &str {
        "a"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        if self.in_start {
            self.notices(&cx.standing).await?;
        }
        Ok(Box::pin(async move { self.notices(&cx.standing).await }))
    }
}

#[test]
fn service_that_notices_the_loss_first_does_not_hide_it() {
    for (in_start, result) in [(false, Ok(())), (false, Err("deposed")), (true, Err("deposed"))] {
        run_one(async |cluster, process| {
            process.storage.fail_always(Verb::CompareAndSwap, Fault::NotApplied);
            let clock = cluster.clock.clone();
            let running = process.launch(vec![Box::new(Watchful { clock, in_start, result })]);
            let problem = running.problem().await;
            assert!(matches!(problem, Some(Problem::Lost(_))), "{in_start}, {result:?}: {problem:?}");
            drop(running.shutdown().await);
        });
    }
}

#[test]
fn vanished_record_limits_stop_timeout_to_the_tightened_deadline() {
    for stops_before in [false, true] {
        run(async |cluster| {
            let mut process = deposed(&cluster);
            process.stop_timeout = TTL.get() * 10;
            let running = process.launch(vec![process.probe("a").work(Act::Refuse).boxed()]);
            let standing = running.leading().await.unwrap().standing;
            let stopped_at = async {
                if !stops_before {
                    let Some(Problem::Lost(Loss::Vanished)) = running.problem().await else { panic!() };
                }
                let Err(Problem::Lost(Loss::Vanished)) = running.shutdown().await else { panic!() };
                cluster.clock.now()
            };
            let lost_at = async {
                assert_eq!(standing.lost().await, Loss::Vanished);
                cluster.clock.now()
            };
            let (stopped_at, lost_at) = tokio::join!(stopped_at, lost_at);
            assert_eq!(stopped_at, lost_at.after(Timing::new(TTL).stopping()), "{stops_before}");
            assert_eq!(stopped_at, standing.kill_at());
            assert_eq!(process.fired().len(), 1);
        });
    }
}

#[test]
fn loss_while_a_service_starts_stops_it_and_the_started_ones() {
    run(async |cluster| {
        let process = deposed(&cluster);
        let interrupted = Act::EndOnStop(Err("interrupted"));
        let running = process.launch(vec![
            process.probe("a").boxed(),
            process.probe("b").start(interrupted).boxed(),
            process.probe("c").boxed(),
        ]);
        process.journal.shows("b starts", 1).await;
        let refused = running.leading().await.unwrap_err();
        assert!(matches!(refused, NotLeading::Problem(Problem::Lost(Loss::Vanished))), "{refused:?}");
        // The error of the cancelled start is not a problem.
        assert!(matches!(running.shutdown().await, Err(Problem::Lost(Loss::Vanished))));
        assert_eq!(process.journal.lines()[2..], ["b starts", "b is cancelled", "a is cancelled", "a ends"]);
        process.leaves_nothing(&cluster).await;
        assert_eq!(process.killer.earliest(), None);
    });
}

#[test]
fn work_returned_by_a_cancelled_start_is_driven_to_its_end() {
    run(async |cluster| {
        let process = deposed(&cluster);
        let running = process.launch(vec![process.probe("a").start(Act::EndOnStop(Ok(()))).boxed()]);
        process.journal.shows("a starts", 1).await;
        assert!(matches!(running.problem().await, Some(Problem::Lost(_))));
        drop(running.shutdown().await);
        assert_eq!(
            process.journal.lines(),
            ["a starts", "a is cancelled", "a is ready", "a is cancelled", "a ends"]
        );
        process.leaves_nothing(&cluster).await;
    });
}

#[test]
fn closed_elections_end_the_vvm_and_release_after_the_work() {
    run_one(async |cluster, mut process| {
        process.stop_timeout = TTL.get() * 10;
        let slow = Act::EndSlowly(cluster.clock.clone(), TTL.get() * 5);
        let running = process.launch(vec![process.probe("a").work(slow).boxed()]);
        running.leading().await.unwrap();
        process.elections.cleanup().await;
        assert_eq!(process.journal.lines().last().unwrap(), "a ends");
        assert!(matches!(running.shutdown().await, Err(Problem::Lost(Loss::Closing))));
        assert_eq!(cluster.record().await, None);
        // It was renewed until the release, so five TTLs passed without a kill.
        assert_eq!(process.fired(), []);
        process.leaves_nothing(&cluster).await;
    });
}

/// Returns a process, and a token whose cancellation ends the task of its elections.
fn process(cluster: &Cluster) -> (Process, CancellationToken) {
    let mut process = cluster.process("leader");
    let end = CancellationToken::new();
    let others = Arc::clone(&process.env.spawn);
    let spawn = Arc::new(HarmfulSpawn { only: Some("elections"), harm: Harm::DropAt(end.clone()), others });
    process.elections = Arc::new(Elections::new(
        Arc::clone(&process.storage) as Arc<_>,
        Env { spawn, ..process.env.clone() },
    ));
    (process, end)
}

/// Shows I4.
#[test]
fn end_of_the_elections_task_stops_services_and_leaves_the_deadline_armed() {
    run(async |cluster| {
        let (process, end) = process(&cluster);
        let running = process.launch(process.probes(&["a"]));
        let led = running.leading().await.unwrap();
        end.cancel();
        running.problem().await;
        let Err(problem) = running.shutdown().await else { panic!() };
        assert!(matches!(problem, Problem::Lost(Loss::EngineEnded)), "{problem:?}");
        assert!(problem.to_string().contains("ends at the kill deadline"), "{problem}");
        assert_eq!(process.journal.lines().last().unwrap(), "a ends");
        assert_eq!(process.killer.earliest().unwrap().0, led.standing.kill_at());
        assert!(cluster.record().await.is_some());
        cluster.reach(led.standing.kill_at()).await;
        assert_eq!(process.fired().len(), 1);
    });
}

#[test]
fn end_of_the_elections_task_after_the_services_is_a_problem() {
    run(async |cluster| {
        let (process, end) = process(&cluster);
        let (only, others) = (Some("vvm service"), Arc::clone(&process.env.spawn));
        let spawn = Arc::new(HarmfulSpawn { only, harm: Harm::CancelAfter(end), others });
        let running = process.launch_by(|config| config.spawn = spawn, process.probes(&["a"]));
        running.leading().await.unwrap();
        let Err(problem) = running.shutdown().await else {
            panic!("the deadline is armed, and no problem says so")
        };
        assert!(matches!(problem, Problem::Lost(Loss::EngineEnded)), "{problem:?}");
        assert!(process.killer.earliest().is_some());
    });
}
