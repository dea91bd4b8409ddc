//! Starts that take too long or never end.

use crate::{
    probe::{Act, Journal, Probe},
    rig::{Cluster, TTL, run},
};
use ielections::{
    AcquireError, Entry, Epoch, Holder, Incarnation, Loss, Version,
    testing::mock::{Fault, Verb},
};
use std::time::Duration;
use vvm_clock::Clock;
use vvm_orch::{NotLeading, Problem};

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn start_beyond_its_limit_is_a_problem_and_is_stopped() {
    run(async |cluster| {
        let journal = Journal::default();
        let mut process = cluster.process("leader");
        process.start_timeout = Some(LIMIT);
        let interrupted = Act::EndOnStop(Err("interrupted"));
        let running = process.launch(Probe::three_with(interrupted, &journal));
        journal.shows("b starts").await;
        let began = cluster.clock.now();
        let Err(NotLeading::Problem(Problem::StartTimedOut { service, after })) = running.leading().await
        else {
            panic!()
        };
        assert_eq!((&*service, after, cluster.clock.now()), ("b", LIMIT, began.after(LIMIT)));
        assert!(matches!(running.shutdown().await, Err(Problem::StartTimedOut { .. })));
        assert_eq!(journal.lines()[2..], ["b starts", "b is cancelled", "a is cancelled", "a ends"]);
        assert_eq!(cluster.record().await, None);
        process.leaves_nothing(&cluster).await;
    });
}

#[test]
fn start_timeout_applies_to_each_service_and_not_to_its_work() {
    run(async |cluster| {
        let journal = Journal::default();
        let mut process = cluster.process("leader");
        process.start_timeout = Some(LIMIT);
        let slow = || Act::EndAfter(cluster.clock.clone(), LIMIT * 2 / 3);
        let running =
            process.launch(["a", "b"].map(|name| Probe::new(name, &journal).start(slow()).boxed()).into());
        running.leading().await.unwrap();
        cluster.sleep(100).await;
        assert!(running.first_problem().is_none());
        running.shutdown().await.unwrap();
    });
}

/// After a loss, a start without a limit has until the kill deadline.
/// Shows I10.
#[test]
fn start_that_hangs_after_a_loss_ends_at_the_kill_deadline() {
    run(async |cluster| {
        let journal = Journal::default();
        let mut process = cluster.process("leader");
        process.stop_timeout = TTL.get() * 10;
        let running = process.launch(vec![
            Probe::new("a", &journal).boxed(),
            Probe::new("b", &journal).start(Act::Refuse).boxed(),
        ]);
        journal.shows("b starts").await;
        process.storage.fail_always(Verb::CompareAndSwap, Fault::NotApplied);
        assert!(matches!(running.problem().await, Some(Problem::Lost(_))));
        let (kill_at, _) = process.killer.earliest().unwrap();
        journal.shows("b is cancelled").await;
        assert!(cluster.clock.now() < kill_at);
        assert!(matches!(running.shutdown().await, Err(Problem::Lost(_))));
        assert_eq!(cluster.clock.now(), kill_at);
        assert_eq!(process.killer.fired().len(), 1);
        assert_eq!(journal.lines().last().unwrap(), "a ends", "the others were not told");
        assert!(cluster.record().await.is_some());
        process.tasks.only_these_are_left(&[("vvm service", 1)]).await;
    });
}

#[test]
fn basic_second_vvm_fails_to_acquire_while_the_first_leads() {
    run(async |cluster| {
        let first = cluster.process("first").launch(vec![]);
        first.leading().await.unwrap();
        let began = cluster.clock.now();

        let second = cluster.process("second").launch(vec![]);
        let problem = second.problem().await;
        let Some(Problem::NotAcquired(error)) = problem else { panic!("{problem:?}") };
        assert!(matches!(*error, AcquireError::TimedOut { .. }), "{error:?}");
        // `DefaultLeadershipAcquisitionDuration`.
        assert_eq!(cluster.clock.now().since(began).as_secs(), 120);
        assert!(matches!(second.shutdown().await, Err(Problem::NotAcquired(_))));

        first.leading().await.unwrap();
        assert!(first.first_problem().is_none());
        first.shutdown().await.unwrap();
    });
}

#[test]
fn shutdown_follows_a_change_of_the_record() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let running = process.launch(vec![Probe::new("a", &journal).boxed()]);
        let led = running.leading().await.unwrap();

        let thief = Entry {
            holder: Holder::new("thief").unwrap(),
            version: Version { incarnation: Incarnation::from_bytes([9; 16]), write: 0 },
            ttl: TTL,
            epoch: Epoch::new(led.standing.epoch().get() + 1).unwrap(),
        };
        process.storage.tamper(&Cluster::key(), thief.clone()).await.unwrap();

        let stolen = |problem: Problem| matches!(problem, Problem::Lost(Loss::Stolen { by }) if *by == thief);
        assert!(stolen(running.problem().await.unwrap()));
        // The test has not called `shutdown`.
        journal.shows("a ends").await;
        assert!(stolen(running.shutdown().await.unwrap_err()));
        // The VVM does not delete another leader's record.
        assert_eq!(cluster.record().await, Some(thief));
        // The release disarms.
        assert_eq!(process.killer.earliest(), None);
        process.tasks.all_end().await;
    });
}

#[test]
fn cancel_leadership_by_shutdown_releases_the_record() {
    run(async |cluster| {
        let process = cluster.process("leader");
        let running = process.launch(vec![]);
        let led = running.leading().await.unwrap();
        assert_eq!(cluster.record().await.map(|entry| entry.epoch), Some(led.standing.epoch()));
        running.shutdown().await.unwrap();
        assert_eq!(cluster.record().await, None);
        assert_eq!(process.killer.earliest(), None);
        process.tasks.all_end().await;
    });
}
