//! Leadership lost: while services run, start and stop.

use crate::{
    probe::{Act, Journal, Probe},
    rig::{Cluster, TTL, run},
};
use ielections::{
    Loss, Timing,
    testing::mock::{Fault, Verb},
};
use vvm_clock::Clock;
use vvm_orch::{NotLeading, Problem};

#[test]
fn a_loss_stops_the_services_at_once_and_without_the_host() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let running = process.launch(["a", "b"].map(|name| Probe::new(name, &journal).boxed()).into());
        let led = running.leading().await.unwrap();
        process.storage.fail_always(Verb::CompareAndSwap, Fault::NotApplied);
        let Some(Problem::Lost(Loss::StorageUnreachable { .. })) = running.problem().await else { panic!() };
        let lost_at = cluster.clock.now();
        journal.shows("a ends").await;
        assert_eq!(cluster.clock.now(), lost_at, "the services were not told at once");
        assert_eq!(journal.lines()[4..], ["b is told to stop", "b ends", "a is told to stop", "a ends"]);
        assert!(lost_at < led.standing.kill_at());
        assert!(matches!(running.leading().await, Err(NotLeading::Problem(Problem::Lost(_)))));
        // Work has stopped, so the leadership is handed back, although it was lost.
        process.leaves_nothing(&cluster).await;
        assert_eq!((process.killer.fired(), process.killer.earliest()), (vec![], None));
        assert_eq!(cluster.record().await, None);
    });
}

#[test]
fn after_a_loss_services_have_until_the_kill_deadline_and_not_their_whole_time() {
    run(async |cluster| {
        let journal = Journal::default();
        let mut process = cluster.process("leader");
        process.stop_timeout = TTL.get() * 10;
        let running = process.launch(vec![
            Probe::new("a", &journal).boxed(),
            Probe::new("b", &journal).work(Act::Refuse).boxed(),
        ]);
        let led = running.leading().await.unwrap();
        process.storage.fail_always(Verb::CompareAndSwap, Fault::NotApplied);
        // The first problem stays the one that is read.
        running.problem().await;
        let Err(Problem::Lost(_)) = running.shutdown().await else { panic!() };
        assert_eq!(cluster.clock.now(), led.standing.kill_at());
        process.tasks.only_these_are_left(&[("vvm service", 1)]).await;
        assert_eq!(process.killer.fired().len(), 1);
        assert!(cluster.record().await.is_some());
    });
}

#[test]
fn after_a_theft_services_have_what_the_tightened_deadline_leaves_them() {
    run(async |cluster| {
        let journal = Journal::default();
        let mut process = cluster.process("leader");
        process.stop_timeout = TTL.get() * 10;
        let running = process.launch(vec![Probe::new("a", &journal).work(Act::Refuse).boxed()]);
        running.leading().await.unwrap();
        process.storage.wipe(&Cluster::key()).await.unwrap();
        let Some(Problem::Lost(Loss::Vanished)) = running.problem().await else { panic!() };
        let lost_at = cluster.clock.now();
        let Err(Problem::Lost(_)) = running.shutdown().await else { panic!() };
        assert_eq!(cluster.clock.now(), lost_at.after(Timing::of(TTL).stopping()));
        assert_eq!(process.killer.fired().len(), 1);
    });
}

#[test]
fn a_loss_while_services_stop_cuts_their_time_short() {
    run(async |cluster| {
        let journal = Journal::default();
        let mut process = cluster.process("leader");
        process.stop_timeout = TTL.get() * 10;
        let running = process.launch(vec![Probe::new("a", &journal).work(Act::Refuse).boxed()]);
        let led = running.leading().await.unwrap();
        process.storage.fail_always(Verb::CompareAndSwap, Fault::NotApplied);
        let Err(Problem::Lost(_)) = running.shutdown().await else { panic!() };
        assert_eq!(cluster.clock.now(), led.standing.kill_at());
    });
}

#[test]
fn a_loss_while_a_service_starts_stops_the_starting_and_the_started() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let interrupted = Act::EndWhenTold(Err("interrupted"));
        let running = process.launch(Probe::three_with(interrupted, &journal));
        journal.shows("b starts").await;
        process.storage.wipe(&Cluster::key()).await.unwrap();
        let refused = running.leading().await.unwrap_err();
        assert!(matches!(refused, NotLeading::Problem(Problem::Lost(Loss::Vanished))), "{refused:?}");
        // That the start was interrupted is no problem of its own.
        assert!(matches!(running.shutdown().await, Err(Problem::Lost(Loss::Vanished))));
        let told = ["b starts", "b is told to stop", "a is told to stop", "a ends"];
        assert_eq!(journal.lines()[2..], told);
        process.leaves_nothing(&cluster).await;
        assert_eq!(process.killer.earliest(), None);
    });
}

#[test]
fn work_that_a_start_returns_although_told_to_stop_is_driven_to_its_end() {
    run(async |cluster| {
        let journal = Journal::default();
        let process = cluster.process("leader");
        let running = process.launch(vec![Probe::new("a", &journal).start(Act::EndWhenTold(Ok(()))).boxed()]);
        journal.shows("a starts").await;
        process.storage.wipe(&Cluster::key()).await.unwrap();
        assert!(matches!(running.problem().await, Some(Problem::Lost(_))));
        drop(running.shutdown().await);
        assert_eq!(
            journal.lines(),
            ["a starts", "a is told to stop", "a is ready", "a is told to stop", "a ends"]
        );
        process.leaves_nothing(&cluster).await;
    });
}

#[test]
fn elections_that_close_end_the_vvm_with_the_record_released_after_the_work() {
    run(async |cluster| {
        let journal = Journal::default();
        let mut process = cluster.process("leader");
        process.stop_timeout = TTL.get() * 10;
        let slow = Act::EndSlowly(cluster.clock.clone(), TTL.get() * 5);
        let running = process.launch(vec![Probe::new("a", &journal).work(slow).boxed()]);
        running.leading().await.unwrap();
        process.elections.cleanup().await;
        assert_eq!(journal.lines().last().unwrap(), "a ends");
        assert!(matches!(running.shutdown().await, Err(Problem::Lost(Loss::Closing))));
        assert_eq!(cluster.record().await, None);
        // Renewed until handed back: five TTLs took it nowhere near a deadline.
        assert_eq!(process.killer.fired(), []);
        process.leaves_nothing(&cluster).await;
    });
}
