//! Hints through the engine: to whoever campaigns, however many there are, and to nobody whose caller is
//! gone.

use crate::{Bench, candidacy, lead, on};
use ielections::{
    ReleaseOutcome, Terms,
    testing::mock::{Fault, Verb},
};
use std::time::Duration;
use vvm_clock::Clock;

#[test]
fn every_campaign_looks_at_once() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leaders = [lead(&process, 0).await, lead(&process, 1).await];
        let waiting = [process.elections.acquire(candidacy(0)), process.elections.acquire(candidacy(1))];
        let course = async {
            bench.clock.sleep(Duration::from_secs(10)).await;
            for leader in leaders {
                assert_eq!(leader.release().await, ReleaseOutcome::Released);
            }
            let told_at = bench.clock.now();
            process.elections.look_now();
            told_at
        };
        let (told_at, led) = tokio::join!(course, futures_util::future::join_all(waiting));
        assert!(bench.clock.now().since(told_at) <= Terms::HINT_GAP);
        for (_, leadership) in led.into_iter().map(Result::unwrap) {
            leadership.release().await;
        }
    });
}

/// Neither the storage nor the queue of commands fills with them (I11).
/// Shows I11.
#[test]
fn a_flood_of_hints_costs_fifty_looks_a_second() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let _leader = lead(&process, 0).await;
        let flood = async {
            bench.clock.sleep(Duration::from_secs(1)).await;
            let before = bench.probe.count(Verb::Scan);
            for _ in 0..2000 {
                for _ in 0..10 {
                    process.elections.look_now();
                }
                bench.clock.sleep(Duration::from_millis(1)).await;
            }
            bench.probe.count(Verb::Scan) - before
        };
        let looks = tokio::select! {
            biased;
            looks = flood => looks,
            _ = process.elections.acquire(candidacy(0)) => panic!("two leaders"),
        };
        assert!((90..=110).contains(&looks), "{looks} looks in two seconds");
    });
}

/// Its claim is on the way, and what became of it is seen to first.
#[test]
fn a_hint_to_one_that_was_withdrawn_changes_nothing() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        bench.faulty.fail_always(Verb::InsertIfNotExist, Fault::SlowAnswer(Duration::from_millis(300)));
        let mut waiting = Box::pin(process.elections.acquire(candidacy(0)));
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("led at once"),
            () = bench.until(|| bench.probe.count(Verb::InsertIfNotExist) > 0) => {}
        }
        drop(waiting);
        for _ in 0..10 {
            process.elections.look_now();
            bench.clock.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(bench.probe.count(Verb::CompareAndDelete), 0, "before it was answered");
        bench.until(|| bench.probe.count(Verb::CompareAndDelete) > 0).await;
        process.elections.cleanup().await;
        process.elections.look_now();
    });
}
