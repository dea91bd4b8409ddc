use crate::rig::{Act, Cluster, TTL, run, run_one};
use ielections::testing::mock::{Fault, Verb};
use std::{thread, time::Duration};
use tokio_util::sync::CancellationToken;
use vvm_clock::{Clock, SystemClock};
use vvm_orch::{NotLeading, Problem, ServiceContext, service_fn};

#[test]
fn service_starts_after_the_previous_is_ready_and_leading_resolves_after_the_last() {
    run(async |cluster| {
        let ready = CancellationToken::new();
        let process = cluster.process("leader");
        let running = process.launch(vec![
            process.probe("a").start(Act::EndAt(ready.clone(), Ok(()))).boxed(),
            process.probe("b").boxed(),
        ]);
        tokio::select! {
            biased;
            _ = running.leading() => panic!("it leads before its services are up"),
            () = cluster.sleep(100) => {}
        }
        assert_eq!(process.journal.lines(), ["a starts"]);
        ready.cancel();
        running.leading().await.unwrap();
        assert_eq!(process.journal.lines(), ["a starts", "a is ready", "b starts", "b is ready"]);
        running.shutdown().await.unwrap();
    });
}

/// How many tasks ran before on this thread decides whether another thread may run the launcher.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_blocks_its_thread_holds_up_no_other_service_and_no_stop() {
    for earlier in (0..20).map(|trial| trial % 4) {
        let cluster = Cluster::new();
        let process = cluster.process("leader");
        let blocking = service_fn("blocking", async |cx: ServiceContext<_>| {
            let give_up_at = SystemClock::read().after(Duration::from_secs(20));
            while !cx.stop.is_cancelled() {
                if SystemClock::read() >= give_up_at {
                    return Err("it was not stopped".into());
                }
                thread::yield_now();
            }
            Ok(())
        });
        let mut services = process.probes(&["a", "b", "c"][..earlier]);
        services.extend([blocking, process.probe("last").boxed()]);
        let running = process.launch(services);
        running.leading().await.unwrap();
        running.shutdown().await.unwrap();
    }
}

#[test]
fn failed_start_stops_earlier_services_in_reverse_and_starts_no_other() {
    run_one(async |cluster, process| {
        let running = process.launch(vec![
            process.probe("a").boxed(),
            process.probe("b").boxed(),
            process.probe("c").start(Act::End(Err("no port is free"))).boxed(),
            process.probe("d").boxed(),
        ]);
        let refused = running.leading().await.unwrap_err();
        assert!(matches!(refused, NotLeading::Problem(Problem::StartFailed { .. })), "{refused:?}");
        let Err(Problem::StartFailed { service, cause }) = running.shutdown().await else { panic!() };
        assert_eq!((&*service, cause.to_string()), ("c", "no port is free".into()));
        let after_c_starts =
            process.journal.lines().into_iter().skip_while(|line| line != "c starts").collect::<Vec<_>>();
        let expected = ["c starts", "b is cancelled", "b ends", "a is cancelled", "a ends"];
        assert_eq!(after_c_starts, expected);
        assert_eq!(cluster.record().await, None);
        assert_eq!(process.killer.earliest(), None);
        process.leaves_nothing(&cluster).await;
    });
}

#[test]
fn service_that_ends_by_itself_shuts_the_vvm_down() {
    for result in [Ok(()), Err("the disk is full")] {
        run(async |cluster| {
            let go = CancellationToken::new();
            let process = cluster.process("leader");
            let running = process.launch(vec![
                process.probe("a").boxed(),
                process.probe("b").work(Act::EndAt(go.clone(), result)).boxed(),
                process.probe("c").boxed(),
            ]);
            running.leading().await.unwrap();
            go.cancel();
            let Some(Problem::Ended { service, failure }) = running.problem().await else { panic!() };
            assert_eq!(&*service, "b");
            assert_eq!(failure.map(|failure| failure.to_string()), result.err().map(String::from));
            process.leaves_nothing(&cluster).await;
            assert_eq!(
                process.journal.lines()[6..],
                ["b ends", "c is cancelled", "c ends", "a is cancelled", "a ends"]
            );
            assert_eq!(cluster.record().await, None);
            assert!(matches!(running.shutdown().await, Err(Problem::Ended { .. })));
        });
    }
}

#[test]
fn service_that_fails_while_stopping_is_a_problem_and_counts_as_stopped() {
    run_one(async |cluster, process| {
        let running = process.launch(vec![
            process.probe("a").boxed(),
            process.probe("b").work(Act::EndOnStop(Err("can't flush"))).boxed(),
        ]);
        running.leading().await.unwrap();
        let Err(Problem::StopFailed { service, cause }) = running.shutdown().await else { panic!() };
        assert_eq!((&*service, cause.to_string()), ("b", "can't flush".into()));
        assert_eq!(process.journal.lines().last().unwrap(), "a ends");
        assert_eq!(cluster.record().await, None);
        process.leaves_nothing(&cluster).await;
    });
}

/// Lets the service panic, and returns the text. Its work may still run, so nothing is released or disarmed (I4, I6).
async fn let_panic(cluster: Cluster, start: Act, work: Act, go: CancellationToken) -> String {
    let process = cluster.process("leader");
    let running =
        process.launch(vec![process.probe("a").boxed(), process.probe("b").start(start).work(work).boxed()]);
    process.journal.shows("b starts", 1).await;
    go.cancel();
    if running.leading().await.is_ok() {
        // It panics on cancellation at the latest.
        drop(running.shutdown().await);
    }
    let Err(Problem::Panicked { service, panic }) = running.shutdown().await else { panic!("no panic") };
    assert_eq!(&*service, "b");
    assert_eq!(process.journal.lines().last().unwrap(), "a ends");
    let record = cluster.record().await.expect("the record was released under work that may still go on");
    let (kill_at, subject) = process.killer.earliest().expect("the deadman was disarmed");
    assert_eq!(subject.epoch, record.epoch.get());
    process.leaves_nothing(&cluster).await;
    cluster.reach(kill_at).await;
    assert_eq!(process.fired(), [(kill_at, subject)]);
    panic.to_string()
}

/// Shows I4.
#[test]
fn panic_is_a_problem_and_leaves_the_deadline_armed() {
    type Behaviour = fn(CancellationToken) -> (Act, Act);
    let cases: [(Behaviour, &str); 3] = [
        (|go| (Act::End(Ok(())), Act::PanicAt(go)), "b has had enough"),
        (|go| (Act::PanicAt(go), Act::EndOnStop(Ok(()))), "b has had enough"),
        (|_| (Act::End(Ok(())), Act::PanicOnStop), "b does not like to stop"),
    ];
    for (behaviour, text) in cases {
        let go = CancellationToken::new();
        let (start, work) = behaviour(go.clone());
        run(async |cluster| assert_eq!(let_panic(cluster, start, work, go).await, text));
    }
}

/// Shows I8.
#[test]
fn all_readers_receive_the_first_problem() {
    run(async |cluster| {
        let go = CancellationToken::new();
        let process = cluster.process("leader");
        let running = process.launch(vec![
            process.probe("a").work(Act::EndOnStop(Err("second"))).boxed(),
            process.probe("b").work(Act::EndAt(go.clone(), Err("first"))).boxed(),
            process.probe("c").work(Act::PanicOnStop).boxed(),
        ]);
        running.leading().await.unwrap();
        assert!(running.first_problem().is_none());
        go.cancel();
        let reads = [
            running.problem().await,
            running.shutdown().await.err(),
            running.problem().await,
            running.first_problem(),
        ];
        for read in reads {
            let Some(Problem::Ended { service, failure }) = read else { panic!("{read:?}") };
            assert_eq!((&*service, failure.unwrap().to_string()), ("b", "first".into()));
        }
        assert!(matches!(running.work_left(), Some(Problem::Panicked { .. })));
    });
}

/// After a loss, a start has until the kill deadline. Shows I10.
#[test]
fn start_that_hangs_after_a_loss_ends_at_the_kill_deadline() {
    run_one(async |cluster, mut process| {
        process.stop_timeout = TTL.get() * 10;
        let running =
            process.launch(vec![process.probe("a").boxed(), process.probe("b").start(Act::Refuse).boxed()]);
        process.journal.shows("b starts", 1).await;
        process.storage.fail_always(Verb::CompareAndSwap, Fault::NotApplied);
        assert!(matches!(running.problem().await, Some(Problem::Lost(_))));
        let (kill_at, _) = process.killer.earliest().unwrap();
        process.journal.shows("b is cancelled", 1).await;
        assert!(cluster.clock.now() < kill_at);
        assert!(matches!(running.shutdown().await, Err(Problem::Lost(_))));
        assert_eq!(cluster.clock.now(), kill_at);
        assert_eq!(process.fired().len(), 1);
        assert_eq!(process.journal.lines().last().unwrap(), "a ends", "the others were not told");
        assert!(cluster.record().await.is_some());
        process.tasks.only_these_are_left(&[("vvm service", 1)]).await;
    });
}
