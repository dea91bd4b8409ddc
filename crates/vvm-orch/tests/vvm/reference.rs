//! The three tests of the reference: Basic, Shutdown, CancelLeadership.

use crate::{
    probe::{Journal, Probe},
    rig::{Cluster, TTL, run},
};
use ielections::{AcquireError, Entry, Epoch, Holder, Incarnation, Loss, Version};
use vvm_clock::Clock;
use vvm_orch::Problem;

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
