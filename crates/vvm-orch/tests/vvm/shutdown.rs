//! Shutdown in every state, any number of times, whatever the storage does.

use crate::{
    probe::{Act, Journal, Probe},
    rig::{Cluster, TTL, run},
};
use futures_util::{FutureExt, future::join_all};
use ielections::{
    Timing,
    testing::mock::{Fault, Verb},
};
use std::time::Duration;
use vvm_clock::Clock;
use vvm_orch::{NotLeading, Problem};

#[test]
fn before_the_campaign_has_begun() {
    run(async |cluster| {
        let process = cluster.process("leader");
        let running = process.launch(vec![]);
        // Nothing of it was polled yet.
        running.shutdown().await.unwrap();
        assert_eq!(process.storage.calls(), 0);
        assert!(matches!(running.leading().await, Err(NotLeading::ShutDown)));
        assert!(running.problem().await.is_none());
        process.leaves_nothing(&cluster).await;
    });
}

/// Shows I10.
#[test]
fn while_campaigning_it_is_prompt_and_leaves_the_leader_alone() {
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

#[test]
fn while_services_start() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let interrupted = Act::EndWhenTold(Err("interrupted"));
        let running = process.launch(Probe::three_with(interrupted, &journal));
        journal.shows("b starts").await;
        running.shutdown().await.unwrap();
        assert_eq!(journal.lines()[2..], ["b starts", "b is told to stop", "a is told to stop", "a ends"]);
        assert!(matches!(running.leading().await, Err(NotLeading::ShutDown)));
        assert_eq!(cluster.record().await, None);
        process.leaves_nothing(&cluster).await;
    });
}

/// Shows I9.
#[test]
fn while_leading_nothing_is_left_but_the_epoch() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let running = process.launch(vec![Probe::new("a", &journal).boxed()]);
        running.leading().await.unwrap();
        let alive =
            [("elections", 1), ("vvm leadership monitor", 1), ("vvm service", 1), ("vvm shutdowner", 1)];
        process.tasks.only_these_are_left(&alive).await;
        running.shutdown().await.unwrap();
        assert!(matches!(running.leading().await, Err(NotLeading::ShutDown)));
        process.leaves_nothing(&cluster).await;
        assert_eq!((process.killer.fired(), process.killer.earliest()), (vec![], None));
    });
}

/// Shows I8.
#[test]
fn after_a_problem_it_returns_the_problem_however_often_it_is_asked() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let running = process.launch(vec![Probe::new("a", &journal).start(Act::End(Err("no"))).boxed()]);
        running.problem().await;
        for _ in 0..3 {
            assert!(matches!(running.shutdown().await, Err(Problem::StartFailed { .. })));
        }
        process.leaves_nothing(&cluster).await;
    });
}

/// Shows I10.
#[test]
fn called_at_once_by_many_all_wait_for_the_end() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let slow = Act::EndSlowly(cluster.clock.clone(), process.stop_timeout / 2);
        let running = process.launch(vec![Probe::new("a", &journal).work(slow).boxed()]);
        running.leading().await.unwrap();
        let calls = (0..10).map(|_| {
            let (running, journal) = (running.clone(), journal.clone());
            tokio::spawn(async move {
                running.shutdown().await.unwrap();
                journal.lines().pop().unwrap()
            })
        });
        for last in join_all(calls).await {
            assert_eq!(last.unwrap(), "a ends");
        }
        assert_eq!(journal.lines().iter().filter(|line| *line == "a is told to stop").count(), 1);
        process.leaves_nothing(&cluster).await;
    });
}

#[test]
fn a_dropped_call_goes_on_shutting_down() {
    run(async |cluster| {
        let process = cluster.process("leader");
        let running = process.launch(vec![]);
        running.leading().await.unwrap();
        assert!(running.shutdown().now_or_never().is_none());
        process.leaves_nothing(&cluster).await;
        assert_eq!(cluster.record().await, None);
    });
}

#[test]
fn dropping_the_last_handle_shuts_down_and_dropping_another_does_not() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let running = process.launch(vec![Probe::new("a", &journal).boxed()]);
        running.leading().await.unwrap();
        drop(running.clone());
        cluster.sleep(100).await;
        assert_eq!(journal.lines().last().unwrap(), "a is ready");
        drop(running);
        process.leaves_nothing(&cluster).await;
        assert_eq!(journal.lines().last().unwrap(), "a ends");
        assert_eq!(cluster.record().await, None);
    });
}

#[test]
fn during_a_campaigns_hung_call_it_waits_for_no_read_and_for_one_write_at_most() {
    for (verb, bound) in
        [(Verb::Scan, Duration::ZERO), (Verb::InsertIfNotExist, Timing::of(TTL).attempt_timeout())]
    {
        run(async |cluster| {
            let process = cluster.process("leader");
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
fn with_a_storage_that_hangs_while_leading_the_release_is_given_up_in_time() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let running = process.launch(vec![Probe::new("a", &journal).boxed()]);
        running.leading().await.unwrap();
        Verb::RECORDS.into_iter().for_each(|verb| process.storage.fail_always(verb, Fault::Hang));
        // A renewal hangs by now.
        cluster.sleep(6).await;
        let began = cluster.clock.now();
        running.shutdown().await.unwrap();
        let timing = Timing::of(TTL);
        // The renewal and its read-back share one attempt's time; then three deletes and the pauses between
        // them.
        let bound = timing.attempt_timeout() * 4 + timing.retry_pause() * 2;
        let took = cluster.clock.now().since(began);
        assert!(took <= bound, "{took:?}");
        assert_eq!(journal.lines().last().unwrap(), "a ends");
        // Left to expire, and nothing that would kill: the work has stopped.
        assert!(cluster.record().await.is_some());
        assert_eq!((process.killer.fired(), process.killer.earliest()), (vec![], None));
        process.tasks.all_end().await;
    });
}

#[test]
fn a_vvm_that_was_never_launched_has_started_nothing() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        drop(process.vvm(vec![Probe::new("a", &journal).boxed()]));
        process.tasks.only_these_are_left(&[("elections", 1)]).await;
        assert_eq!((journal.lines(), process.storage.calls()), (vec![], 0));
        assert_eq!(Cluster::record(&cluster).await, None);
    });
}
