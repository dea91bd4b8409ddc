use crate::{Bench, MOST_IN_FLIGHT, TTL, candidacy, lead, on};
use futures_util::future::join_all;
use ielections::testing::mock::{Fault, Logged, Verb};
use std::{sync::Arc, time::Duration};
use vvm_clock::Clock;

const ANSWERS_AFTER: Duration = Duration::from_millis(10);

impl Bench {
    fn most_waiting(&self) -> usize {
        let log = self.faulty.log();
        let waits = |call: &&Logged, at| call.at <= at && call.until.is_none_or(|until| until > at);
        log.iter().map(|one| log.iter().filter(|other| waits(other, one.at)).count()).max().unwrap_or(0)
    }
}

#[test]
fn no_more_calls_are_in_flight_than_allowed() {
    let bench = Bench::new();
    on(&bench.clock, async {
        for verb in Verb::RECORDS {
            bench.faulty.fail_always(verb, Fault::SlowAnswer(ANSWERS_AFTER));
        }
        let process = bench.process();
        let leaderships = join_all((0..300).map(|slot| lead(&process, slot))).await;
        bench.clock.sleep(TTL).await;
        // The rest of the places is for renewals, which come one after the other here.
        let most = MOST_IN_FLIGHT * 3 / 4;
        assert_eq!(bench.most_waiting(), most, "of {} calls", bench.faulty.log().len());
        join_all(leaderships.into_iter().map(|leadership| leadership.release())).await;
        assert_eq!((bench.most_waiting(), process.deadman.armed()), (most, 0));
    });
}

#[test]
fn renewals_go_before_other_calls() {
    const READ_IN: Duration = Duration::from_secs(1);
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process, 0).await;
        let before = leadership.standing().kill_at();
        bench.faulty.fail_always(Verb::Scan, Fault::SlowAnswer(READ_IN));
        let crowd = join_all((0..4 * MOST_IN_FLIGHT).map(|_| process.elections.acquire(candidacy(0))));
        let renewed = bench.until(|| leadership.standing().kill_at() > before);
        tokio::select! {
            biased;
            () = renewed => {}
            _ = crowd => panic!("two leaders"),
        }
        let renewed_at = bench.faulty.calls_of(Verb::CompareAndSwap)[0].at;
        let due = before.before(TTL * 8 / 10).after(TTL / 4);
        assert!(renewed_at <= due.after(READ_IN), "waited behind the candidates until {renewed_at:?}");
        leadership.release().await;
    });
}

#[test]
fn leadership_without_faults_costs_four_writes_a_ttl() {
    const TTLS: u32 = 50;
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leadership = lead(&process, 0).await;
        let before = bench.faulty.log().len();
        bench.clock.sleep(TTL * TTLS).await;
        let calls = bench.faulty.log().split_off(before);
        let others = calls.iter().filter(|call| call.verb != Verb::CompareAndSwap).collect::<Vec<_>>();
        assert!(others.is_empty(), "{others:?}");
        let (least, most) = (4 * TTLS as usize - 1, (4 * TTLS as usize) * 100 / 95 + 1);
        assert!((least..=most).contains(&calls.len()), "{} writes in {TTLS} TTLs", calls.len());
        leadership.release().await;
    });
}

async fn turns_until(seen: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if seen() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the engine has nothing more to do");
}

#[test]
fn deadlines_are_moved_in_batches() {
    const HELD: u32 = 1_000;
    let bench = Bench::new();
    // Not advanced while idle, so that all are due in one step.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let process = bench.process();
        let mut leaderships = Vec::new();
        for slot in 0..HELD {
            leaderships.push(lead(&process, slot).await);
        }
        assert_eq!(process.trigger.calls(), 1, "the same deadline is set once");
        let kill_at = leaderships[0].standing().kill_at();
        bench.clock.advance(TTL / 4);
        turns_until(|| leaderships.iter().all(|one| one.standing().kill_at() > kill_at)).await;
        // The engine handles 64 events of one kind in a round, and moves deadlines once in a round.
        let calls = process.trigger.calls();
        assert!(calls <= 1 + HELD as usize / 64 + 1, "{calls} calls for {HELD} renewals");
        assert_eq!(process.trigger.earliest().unwrap().0, leaderships[0].standing().kill_at());
        join_all(leaderships.into_iter().map(|leadership| leadership.release())).await;
    });
}

#[test]
fn busy_engine_yields_to_other_tasks() {
    const RENEWALS: u64 = 10_000;
    let bench = Bench::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let process = bench.process();
        let leadership = lead(&process, 0).await;
        let (clock, faulty) = (bench.clock.clone(), Arc::downgrade(&bench.faulty));
        bench.faulty.watch(move |_| {
            // The next renewal is due as soon as this one is answered. Bounded, so that a failure ends.
            if faulty.upgrade().is_some_and(|faulty| faulty.count(Verb::CompareAndSwap) < RENEWALS) {
                clock.advance(TTL / 4);
            }
        });
        bench.clock.advance(TTL / 4);
        turns_until(|| bench.faulty.count(Verb::CompareAndSwap) >= 100).await;
        assert!(bench.faulty.count(Verb::CompareAndSwap) < RENEWALS / 2, "no other task ran");
        assert!(!process.trigger.check());
        bench.faulty.watch(|_| {});
        assert_eq!(leadership.standing().loss(), None);
        leadership.release().await;
        assert!(bench.clock.now() > vvm_clock::Instant::ORIGIN.after(TTL));
    });
}
