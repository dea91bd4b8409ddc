//! Hints through the engine: to every campaign whose caller still waits.

use crate::{Bench, TTL, candidacy, lead, on};
use ielections::{
    ReleaseOutcome, Terms,
    testing::mock::{Fault, Verb},
};
use std::{sync::atomic::Ordering, time::Duration};
use vvm_clock::Clock;

#[test]
fn hint_makes_every_campaign_read_at_once() {
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

/// The standby of a live leader reads a few times in each TTL, and still leads right after a hint.
#[test]
fn standby_reads_less_often_while_hints_follow_releases() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leader = lead(&process, 0).await;
        let course = async {
            let mut reads = [0; 2];
            for hints in [false, true] {
                bench.probe.hints.store(hints, Ordering::SeqCst);
                bench.clock.sleep(TTL).await;
                let before = bench.probe.count(Verb::Scan);
                bench.clock.sleep(TTL * 10).await;
                reads[usize::from(hints)] = bench.probe.count(Verb::Scan) - before;
            }
            let [polls, reads] = reads;
            assert!(polls >= 200 && reads <= 55, "{polls} reads without hints, {reads} with");
            assert_eq!(leader.release().await, ReleaseOutcome::Released);
            process.elections.look_now();
            bench.clock.now()
        };
        let (told_at, led) = tokio::join!(course, process.elections.acquire(candidacy(0)));
        assert!(bench.clock.now().since(told_at) <= Terms::HINT_GAP);
        led.unwrap().1.release().await;
    });
}

/// Neither storage calls nor commands pile up (I11).
/// Shows I11.
#[test]
fn flood_of_hints_costs_fifty_reads_a_second() {
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

/// Its claim is in flight and is settled first.
#[test]
fn hint_to_a_withdrawn_campaign_has_no_effect() {
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
