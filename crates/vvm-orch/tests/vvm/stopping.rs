use crate::rig::{Act, TTL, run, run_one};
use futures_util::{FutureExt, future::join_all};
use ielections::{
    Timing,
    testing::mock::{Fault, Verb},
};
use std::time::Duration;
use vvm_clock::Clock;
use vvm_orch::{NotLeading, Problem};

/// Shows I6.
#[test]
fn renewals_continue_while_services_stop_and_the_release_follows_the_last() {
    run_one(async |cluster, mut process| {
        process.stop_timeout = TTL.get() * 10;
        let slow = Act::EndSlowly(cluster.clock.clone(), TTL.get() * 9);
        let running = process.launch(vec![process.probe("a").work(slow).boxed()]);
        let led = running.leading().await.unwrap();
        let shutdown = tokio::spawn(async move { running.shutdown().await });
        process.journal.shows("a is cancelled", 1).await;
        let told_at = cluster.clock.now();
        cluster.reach(told_at.after(TTL.get() * 9 - Duration::from_secs(1))).await;
        assert_eq!(cluster.record().await.map(|entry| entry.epoch), Some(led.standing.epoch()));
        assert_eq!(led.standing.loss(), None);
        shutdown.await.unwrap().unwrap();
        assert_eq!(cluster.seconds_since(told_at), 180.0);
        assert_eq!(cluster.record().await, None);
        assert!(process.is_disarmed());
        process.leaves_nothing(&cluster).await;
    });
}

/// Shows I6.
#[test]
fn service_that_does_not_stop_keeps_the_record_until_the_kill_deadline() {
    run_one(async |cluster, process| {
        let running = process.launch(vec![
            process.probe("a").boxed(),
            process.probe("b").work(Act::Refuse).boxed(),
            process.probe("c").boxed(),
        ]);
        let led = running.leading().await.unwrap();
        let began = cluster.clock.now();
        let Err(Problem::WontStop { service }) = running.shutdown().await else { panic!() };
        assert_eq!(&*service, "b");
        assert_eq!(cluster.seconds_since(began), process.stop_timeout.as_secs_f64());
        let stopped = ["c is cancelled", "c ends", "b is cancelled", "a is cancelled", "a ends"];
        assert_eq!(process.journal.lines()[6..], stopped);
        process.tasks.only_these_are_left(&[("vvm service", 1)]).await;
        // No renewal, no delete: the last deadline remains.
        let record = cluster.record().await.unwrap();
        let (kill_at, _) = process.killer.earliest().unwrap();
        assert_eq!(kill_at, led.standing.kill_at());
        assert!(cluster.clock.now() < kill_at);
        cluster.reach(kill_at).await;
        assert_eq!(process.fired().len(), 1);
        assert_eq!(cluster.record().await, Some(record));
    });
}

/// Shows I6.
#[test]
fn start_that_does_not_stop_keeps_the_record() {
    run_one(async |cluster, process| {
        let running =
            process.launch(vec![process.probe("a").boxed(), process.probe("b").start(Act::Refuse).boxed()]);
        process.journal.shows("b starts", 1).await;
        let began = cluster.clock.now();
        let Err(Problem::WontStop { service }) = running.shutdown().await else { panic!() };
        assert_eq!(&*service, "b");
        assert_eq!(cluster.seconds_since(began), process.stop_timeout.as_secs_f64());
        assert_eq!(process.journal.lines().last().unwrap(), "a ends");
        assert!(cluster.record().await.is_some());
        assert!(process.killer.earliest().is_some());
        process.tasks.only_these_are_left(&[("vvm service", 1)]).await;
    });
}

#[test]
fn stop_timeout_applies_to_all_services_together() {
    run_one(async |cluster, process| {
        let slow = || Act::EndSlowly(cluster.clock.clone(), Duration::from_secs(5));
        let running = process
            .launch(vec![process.probe("a").work(slow()).boxed(), process.probe("b").work(slow()).boxed()]);
        running.leading().await.unwrap();
        let began = cluster.clock.now();
        let Err(Problem::WontStop { service }) = running.shutdown().await else { panic!() };
        assert_eq!((&*service, cluster.seconds_since(began)), ("a", 8.0));
        assert!(cluster.record().await.is_some());
    });
}

#[test]
fn services_behind_one_that_does_not_stop_have_until_the_kill_deadline() {
    run_one(async |cluster, process| {
        let running = process.launch(vec![
            process.probe("a").work(Act::Refuse).boxed(),
            process.probe("b").work(Act::EndSlowly(cluster.clock.clone(), Duration::from_secs(1))).boxed(),
            process.probe("c").work(Act::Refuse).boxed(),
        ]);
        running.leading().await.unwrap();
        let Err(Problem::WontStop { service }) = running.shutdown().await else { panic!() };
        assert_eq!(&*service, "c");
        assert!(process.journal.lines().contains(&"b ends".into()));
        let (kill_at, _) = process.killer.earliest().unwrap();
        assert_eq!(cluster.clock.now(), kill_at);
        process.tasks.only_these_are_left(&[("vvm service", 2)]).await;
    });
}

#[test]
fn shutdown_before_the_campaign_calls_no_storage() {
    run_one(async |cluster, process| {
        let running = process.launch(vec![]);
        running.shutdown().await.unwrap();
        assert_eq!(process.storage.calls(), 0);
        assert!(matches!(running.leading().await, Err(NotLeading::ShutDown)));
        assert!(running.problem().await.is_none());
        process.leaves_nothing(&cluster).await;
    });
}

/// Shows I10.
#[test]
fn shutdown_while_campaigning_is_immediate_and_does_not_affect_the_leader() {
    run(async |cluster| {
        let leader = cluster.process("leader").launch(vec![]);
        let epoch = leader.leading().await.unwrap().standing.epoch();
        let standby = cluster.process("standby");
        let running = standby.launch(vec![]);
        cluster.sleep(30).await;
        let began = cluster.clock.now();
        running.shutdown().await.unwrap();
        assert_eq!(cluster.clock.now(), began);
        standby.tasks.all_end().await;
        assert_eq!(cluster.record().await.map(|entry| entry.epoch), Some(epoch));
        leader.shutdown().await.unwrap();
    });
}

/// Shows I9.
#[test]
fn shutdown_while_leading_leaves_no_task_and_no_deadline() {
    run_one(async |cluster, process| {
        let running = process.launch(process.probes(&["a"]));
        running.leading().await.unwrap();
        let alive = [("elections", 1), ("vvm service", 1), ("vvm", 1)];
        process.tasks.only_these_are_left(&alive).await;
        running.shutdown().await.unwrap();
        assert!(matches!(running.leading().await, Err(NotLeading::ShutDown)));
        assert_eq!(cluster.record().await, None);
        process.leaves_nothing(&cluster).await;
        assert!(process.is_disarmed());
    });
}

/// Shows I10.
#[test]
fn concurrent_shutdowns_all_wait_for_the_end() {
    run_one(async |cluster, process| {
        let slow = Act::EndSlowly(cluster.clock.clone(), process.stop_timeout / 2);
        let running = process.launch(vec![process.probe("a").work(slow).boxed()]);
        running.leading().await.unwrap();
        let calls = (0..10).map(|_| async {
            running.shutdown().await.unwrap();
            process.journal.lines().pop().unwrap()
        });
        for last in join_all(calls).await {
            assert_eq!(last, "a ends");
        }
        assert_eq!(process.journal.lines().iter().filter(|line| *line == "a is cancelled").count(), 1);
        process.leaves_nothing(&cluster).await;
    });
}

#[test]
fn dropped_shutdown_call_and_dropped_handle_shut_down() {
    for drops_handle in [false, true] {
        run_one(async |cluster, process| {
            let running = process.launch(process.probes(&["a"]));
            running.leading().await.unwrap();
            assert!(drops_handle || running.shutdown().now_or_never().is_none());
            let _kept = (!drops_handle).then_some(running);
            process.leaves_nothing(&cluster).await;
            assert_eq!(process.journal.lines().last().unwrap(), "a ends");
            assert_eq!(cluster.record().await, None);
        });
    }
}

#[test]
fn shutdown_during_a_hung_call_waits_for_no_read_and_for_at_most_one_write() {
    for (verb, bound) in
        [(Verb::Scan, Duration::ZERO), (Verb::InsertIfNotExist, Timing::new(TTL).attempt_timeout())]
    {
        run_one(async |cluster, process| {
            process.storage.fail_always(verb, Fault::Hang);
            let running = process.launch(vec![]);
            cluster.sleep(1).await;
            assert_eq!(process.storage.under_way(), 1);
            let began = cluster.clock.now();
            running.shutdown().await.unwrap();
            assert!(cluster.clock.now().since(began) <= bound, "{verb:?}");
            process.tasks.all_end().await;
            assert_eq!(cluster.record().await, None);
        });
    }
}

/// Shows I10.
#[test]
fn shutdown_gives_up_the_release_if_the_storage_hangs() {
    run_one(async |cluster, process| {
        let running = process.launch(process.probes(&["a"]));
        running.leading().await.unwrap();
        Verb::RECORDS.into_iter().for_each(|verb| process.storage.fail_always(verb, Fault::Hang));
        // After this time a renewal hangs.
        cluster.sleep(6).await;
        let began = cluster.clock.now();
        running.shutdown().await.unwrap();
        let timing = Timing::new(TTL);
        // The renewal and its read-back share one attempt's time. Then come three deletes with pauses.
        let bound = timing.attempt_timeout() * 4 + timing.retry_pause() * 2;
        let took = cluster.clock.now().since(began);
        assert!(took <= bound, "{took:?}");
        assert_eq!(process.journal.lines().last().unwrap(), "a ends");
        assert!(cluster.record().await.is_some());
        assert!(process.is_disarmed());
        process.tasks.all_end().await;
    });
}
