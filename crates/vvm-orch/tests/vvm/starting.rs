//! Starts that take too long or never end.

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
