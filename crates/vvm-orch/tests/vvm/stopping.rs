//! Services that stop slowly or not at all.

use crate::{
    probe::{Act, Journal, Probe},
    rig::{TTL, run},
};
use std::time::Duration;
use vvm_clock::Clock;
use vvm_orch::Problem;

/// Shows I6.
#[test]
fn renewals_continue_while_services_stop_and_the_release_follows_the_last() {
    run(async |cluster| {
        let journal = Journal::default();
        let mut process = cluster.process("leader");
        process.stop_timeout = TTL.get() * 10;
        let slow = Act::EndSlowly(cluster.clock.clone(), TTL.get() * 9);
        let running = process.launch(vec![Probe::new("a", &journal).work(slow).boxed()]);
        let led = running.leading().await.unwrap();
        let shutdown = tokio::spawn({
            let running = running.clone();
            async move { running.shutdown().await }
        });
        journal.shows("a is cancelled").await;
        // While it works.
        let told_at = cluster.clock.now();
        cluster.reach(told_at.after(TTL.get() * 9 - Duration::from_secs(1))).await;
        assert_eq!(cluster.record().await.map(|entry| entry.epoch), Some(led.standing.epoch()));
        assert_eq!(led.standing.loss(), None);
        shutdown.await.unwrap().unwrap();
        assert_eq!(cluster.seconds_since(told_at), 180.0);
        assert_eq!(cluster.record().await, None);
        assert_eq!((process.killer.fired(), process.killer.earliest()), (vec![], None));
        process.leaves_nothing(&cluster).await;
    });
}

/// Shows I6.
#[test]
fn service_that_does_not_stop_keeps_the_record_until_the_kill_deadline() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let running = process.launch(vec![
            Probe::new("a", &journal).boxed(),
            Probe::new("b", &journal).work(Act::Refuse).boxed(),
            Probe::new("c", &journal).boxed(),
        ]);
        let led = running.leading().await.unwrap();
        let began = cluster.clock.now();
        let Err(Problem::WontStop { service }) = running.shutdown().await else { panic!() };
        assert_eq!(&*service, "b");
        assert_eq!(cluster.seconds_since(began), process.stop_timeout.as_secs_f64());
        // Only the task of the service that does not stop is left.
        let stopped = ["c is cancelled", "c ends", "b is cancelled", "a is cancelled", "a ends"];
        assert_eq!(journal.lines()[6..], stopped);
        process.tasks.only_these_are_left(&[("vvm service", 1)]).await;
        // No renewal, no delete: the last deadline remains.
        let record = cluster.record().await.unwrap();
        let (kill_at, _) = process.killer.earliest().unwrap();
        assert_eq!(kill_at, led.standing.kill_at());
        assert!(cluster.clock.now() < kill_at);
        cluster.reach(kill_at).await;
        assert_eq!(process.killer.fired().len(), 1);
        assert_eq!(cluster.record().await, Some(record));
    });
}

#[test]
fn start_that_does_not_stop_keeps_the_record() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let running = process.launch(vec![
            Probe::new("a", &journal).boxed(),
            Probe::new("b", &journal).start(Act::Refuse).boxed(),
        ]);
        journal.shows("b starts").await;
        let began = cluster.clock.now();
        let Err(Problem::WontStop { service }) = running.shutdown().await else { panic!() };
        assert_eq!(&*service, "b");
        assert_eq!(cluster.seconds_since(began), process.stop_timeout.as_secs_f64());
        assert_eq!(journal.lines().last().unwrap(), "a ends");
        assert!(cluster.record().await.is_some());
        assert!(process.killer.earliest().is_some());
        process.tasks.only_these_are_left(&[("vvm service", 1)]).await;
    });
}

#[test]
fn stop_timeout_applies_to_all_services_together() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let slow = || Act::EndSlowly(cluster.clock.clone(), Duration::from_secs(5));
        let running = process.launch(vec![
            Probe::new("a", &journal).work(slow()).boxed(),
            Probe::new("b", &journal).work(slow()).boxed(),
        ]);
        running.leading().await.unwrap();
        let began = cluster.clock.now();
        let Err(Problem::WontStop { service }) = running.shutdown().await else { panic!() };
        assert_eq!((&*service, cluster.seconds_since(began)), ("a", 8.0));
        assert!(cluster.record().await.is_some());
    });
}

#[test]
fn services_behind_one_that_does_not_stop_have_until_the_kill_deadline() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let running = process.launch(vec![
            Probe::new("a", &journal).work(Act::Refuse).boxed(),
            Probe::new("b", &journal)
                .work(Act::EndSlowly(cluster.clock.clone(), Duration::from_secs(1)))
                .boxed(),
            Probe::new("c", &journal).work(Act::Refuse).boxed(),
        ]);
        running.leading().await.unwrap();
        let Err(Problem::WontStop { service }) = running.shutdown().await else { panic!() };
        assert_eq!(&*service, "c");
        assert!(journal.lines().contains(&"b ends".into()));
        let (kill_at, _) = process.killer.earliest().unwrap();
        assert_eq!(cluster.clock.now(), kill_at);
        process.tasks.only_these_are_left(&[("vvm service", 2)]).await;
    });
}
