//! Starts that take too long, or never end.

use crate::{
    probe::{Act, Journal, Probe},
    rig::{TTL, run},
};
use ielections::testing::mock::{Fault, Verb};
use std::time::Duration;
use vvm_clock::Clock;
use vvm_orch::{NotLeading, Problem};

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_start_that_takes_too_long_is_a_problem_and_is_stopped_like_any_other() {
    run(async |cluster| {
        let journal = Journal::default();
        let mut process = cluster.process("leader");
        process.start_timeout = Some(LIMIT);
        let interrupted = Act::EndWhenTold(Err("interrupted"));
        let running = process.launch(Probe::three_with(interrupted, &journal));
        journal.shows("b starts").await;
        let began = cluster.clock.now();
        let Err(NotLeading::Problem(Problem::StartTimedOut { service, after })) = running.leading().await
        else {
            panic!()
        };
        assert_eq!((&*service, after, cluster.clock.now()), ("b", LIMIT, began.after(LIMIT)));
        assert!(matches!(running.shutdown().await, Err(Problem::StartTimedOut { .. })));
        assert_eq!(journal.lines()[2..], ["b starts", "b is told to stop", "a is told to stop", "a ends"]);
        assert_eq!(cluster.record().await, None);
        process.leaves_nothing(&cluster).await;
    });
}

#[test]
fn each_service_has_the_whole_time_to_start_and_none_afterwards() {
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

/// Without a limit of its own, a start has until the kill deadline once the leadership is lost.
/// Shows I10.
#[test]
fn a_start_that_hangs_through_a_loss_ends_with_the_process() {
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
        journal.shows("b is told to stop").await;
        assert!(cluster.clock.now() < kill_at);
        assert!(matches!(running.shutdown().await, Err(Problem::Lost(_))));
        assert_eq!(cluster.clock.now(), kill_at);
        assert_eq!(process.killer.fired().len(), 1);
        assert_eq!(journal.lines().last().unwrap(), "a ends", "the others were not told");
        assert!(cluster.record().await.is_some());
        process.tasks.only_these_are_left(&[("vvm service", 1)]).await;
    });
}
