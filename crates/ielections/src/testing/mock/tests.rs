//! Each fault has its documented effect, and no other.

use super::*;
use crate::{
    Claim, Delete, Entry, Epoch, Holder, Incarnation, ReadError, Slot, Swap, Ttl, TtlStorage, Vacant,
    Version, WriteError,
    testing::{Model, ModelStorage},
};
use futures_util::FutureExt;
use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};
use vvm_clock::{Clock, Instant, Sleep};

/// A clock that is set by hand and wakes no task: these tests poll by hand, too.
#[derive(Debug, Default)]
struct HandClock(Arc<AtomicU64>);

impl HandClock {
    fn advance(&self, span: Duration) {
        self.0.fetch_add(span.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        let now = Arc::clone(&self.0);
        Box::pin(poll_fn(move |_| {
            if now.load(Ordering::SeqCst) >= deadline.as_nanos() { Poll::Ready(()) } else { Poll::Pending }
        }))
    }
}

const SECOND: Duration = Duration::from_secs(1);
const KEY: u8 = 1;

struct Bench {
    clock: Arc<HandClock>,
    faulty: FaultyStorage<u8>,
    direct: Arc<ModelStorage<u8>>,
}

impl Bench {
    /// A slot held by the first version of an entry.
    fn held() -> (Self, Entry) {
        let (clock, model) = (Arc::new(HandClock::default()), Model::new());
        let bench = Self {
            faulty: FaultyStorage::new(model.open(), Arc::clone(&clock) as _),
            clock,
            direct: model.open(),
        };
        let entry = entry(1, 0);
        let claim = now(bench.direct.insert_if_not_exist(&KEY, Vacant::default(), &entry)).unwrap();
        assert_eq!(claim, Claim::Claimed);
        (bench, entry)
    }

    fn stands(&self) -> Option<Entry> {
        now(self.direct.get(&KEY)).unwrap().entry().cloned()
    }
}

fn entry(epoch: u64, write: u64) -> Entry {
    Entry {
        holder: Holder::new("other").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([epoch as u8; 16]), write },
        ttl: Ttl::DEFAULT,
        epoch: Epoch::new(epoch).unwrap(),
    }
}

/// The output of a future that is ready at its first poll.
fn now<T>(future: impl Future<Output = T>) -> T {
    Box::pin(future).now_or_never().expect("the call waits for something")
}

fn next(entry: &Entry) -> Entry {
    entry.renewed(entry.version.next())
}

#[test]
fn without_faults_every_verb_passes_through() {
    let (bench, first) = Bench::held();
    let second = next(&first);
    assert_eq!(now(bench.faulty.compare_and_swap(&KEY, &first, &second)).unwrap(), Swap::Swapped);
    let third = entry(2, 0);
    assert_eq!(now(bench.faulty.take_over(&KEY, &second, &third)).unwrap(), Claim::Claimed);
    let released = now(bench.faulty.compare_and_delete(&KEY, third.incarnation(), third.epoch));
    assert_eq!(released.unwrap(), Delete::Deleted);
    let vacant = Vacant { last_epoch: Some(third.epoch) };
    assert_eq!(now(bench.faulty.get(&KEY)).unwrap(), Slot::Vacant(vacant));
    let fourth = entry(3, 0);
    assert_eq!(now(bench.faulty.insert_if_not_exist(&KEY, vacant, &fourth)).unwrap(), Claim::Claimed);
    assert_eq!(now(bench.faulty.scan(&[KEY])).unwrap()[0].entry(), Some(&fourth));
    let calls = Verb::RECORDS.map(|verb| (verb, 1)).into();
    assert_eq!(bench.faulty.counts(), Counts { calls, ..Counts::default() });
}

#[test]
fn call_that_fails_before_it_arrives_has_no_effect() {
    for (fault, is_right) in [
        (Fault::NotApplied, (|e| matches!(e, WriteError::NotApplied(_))) as fn(&WriteError) -> bool),
        (Fault::Fatal, |e| matches!(e, WriteError::Fatal(_))),
        (Fault::Replaced, |e| matches!(e, WriteError::Replaced(_))),
        (Fault::LostRequest, |e| matches!(e, WriteError::Unknown(_))),
    ] {
        let (bench, first) = Bench::held();
        bench.faulty.fail_next(Verb::CompareAndSwap, fault);
        let error = now(bench.faulty.compare_and_swap(&KEY, &first, &next(&first))).unwrap_err();
        assert!(is_right(&error), "{fault:?}: {error:?}");
        now(bench.faulty.land_late());
        assert_eq!(bench.stands(), Some(first), "{fault:?}");
    }
}

#[test]
fn write_with_lost_answer_is_applied() {
    let (bench, first) = Bench::held();
    let second = next(&first);
    bench.faulty.fail_next(Verb::CompareAndSwap, Fault::LostAnswer);
    let error = now(bench.faulty.compare_and_swap(&KEY, &first, &second)).unwrap_err();
    assert!(matches!(error, WriteError::Unknown(_)));
    assert_eq!(bench.stands(), Some(second));
    assert_eq!(bench.faulty.counts().lost_answers, 1);
}

#[test]
fn refused_write_with_lost_answer_does_not_count_as_applied() {
    let (bench, first) = Bench::held();
    bench.faulty.fail_next(Verb::CompareAndSwap, Fault::LostAnswer);
    now(bench.faulty.compare_and_swap(&KEY, &next(&first), &first)).unwrap_err();
    assert_eq!(bench.faulty.counts().lost_answers, 0);
}

#[test]
fn slow_request_is_applied_after_its_delay_and_slow_answer_before_it() {
    for (fault, applied_at_start) in [(Fault::SlowRequest(SECOND), false), (Fault::SlowAnswer(SECOND), true)]
    {
        let (bench, first) = Bench::held();
        let second = next(&first);
        bench.faulty.fail_next(Verb::CompareAndSwap, fault);
        let mut swap = bench.faulty.compare_and_swap(&KEY, &first, &second);
        assert!(swap.as_mut().now_or_never().is_none());
        assert_eq!(bench.stands() == Some(second.clone()), applied_at_start, "{fault:?}");
        bench.clock.advance(SECOND);
        assert_eq!(swap.now_or_never().unwrap().unwrap(), Swap::Swapped);
        assert_eq!(bench.stands(), Some(second));
    }
}

#[test]
fn write_dropped_in_flight_is_applied_after_its_delay() {
    let (bench, first) = Bench::held();
    let second = next(&first);
    bench.faulty.fail_next(Verb::CompareAndSwap, Fault::SlowRequest(SECOND));
    let mut swap = bench.faulty.compare_and_swap(&KEY, &first, &second);
    assert!(swap.as_mut().now_or_never().is_none());
    drop(swap);
    now(bench.faulty.deliver_due());
    assert_eq!(bench.stands(), Some(first));
    assert_eq!(bench.faulty.next_arrival(), Some(Instant::ORIGIN.after(SECOND)));
    bench.clock.advance(SECOND);
    // The next call delivers it first.
    assert_eq!(now(bench.faulty.get(&KEY)).unwrap().entry(), Some(&second));
    assert_eq!((bench.faulty.counts().landed_late, bench.faulty.under_way()), (1, 0));
}

#[test]
fn late_and_held_back_writes_arrive_after_newer_ones() {
    for fault in [Fault::Late(SECOND), Fault::HeldBack] {
        let (bench, first) = Bench::held();
        let second = next(&first);
        bench.faulty.fail_next(Verb::TakeOver, fault);
        let ghost = entry(9, 0);
        let error = now(bench.faulty.take_over(&KEY, &first, &ghost)).unwrap_err();
        assert!(matches!(error, WriteError::Unknown(_)));
        // A newer write is answered in between, so the late one is refused.
        assert_eq!(now(bench.faulty.compare_and_swap(&KEY, &first, &second)).unwrap(), Swap::Swapped);
        bench.clock.advance(SECOND);
        now(bench.faulty.land_late());
        assert_eq!(bench.stands(), Some(second.clone()), "{fault:?}");
        assert_eq!(bench.faulty.counts().refused_late, 1);

        // Without a write in between it applies.
        bench.faulty.fail_next(Verb::TakeOver, fault);
        now(bench.faulty.take_over(&KEY, &second, &ghost)).unwrap_err();
        assert_eq!(bench.stands(), Some(second));
        bench.clock.advance(SECOND);
        now(bench.faulty.land_late());
        assert_eq!(bench.stands(), Some(ghost));
        assert_eq!(bench.faulty.counts().landed_late, 1);
    }
}

#[test]
fn hanging_call_is_applied_by_land_late() {
    let (bench, first) = Bench::held();
    let second = next(&first);
    bench.faulty.fail_next(Verb::CompareAndSwap, Fault::Hang);
    bench.faulty.fail_next(Verb::Get, Fault::Hang);
    let mut swap = bench.faulty.compare_and_swap(&KEY, &first, &second);
    let mut get = bench.faulty.get(&KEY);
    assert!(swap.as_mut().now_or_never().is_none());
    assert!(get.as_mut().now_or_never().is_none());
    bench.clock.advance(SECOND * 3600);
    assert!(swap.as_mut().now_or_never().is_none());
    assert_eq!(bench.stands(), Some(first.clone()));
    now(bench.faulty.land_late());
    assert_eq!(swap.now_or_never().unwrap().unwrap(), Swap::Swapped);
    assert_eq!(get.now_or_never().unwrap().unwrap().entry(), Some(&second));
}

#[test]
fn lost_call_is_never_applied() {
    let (bench, first) = Bench::held();
    bench.faulty.fail_next(Verb::CompareAndSwap, Fault::Hang);
    bench.faulty.fail_next(Verb::Get, Fault::Hang);
    let second = next(&first);
    let mut swap = bench.faulty.compare_and_swap(&KEY, &first, &second);
    let mut get = bench.faulty.get(&KEY);
    assert!(swap.as_mut().now_or_never().is_none());
    assert!(get.as_mut().now_or_never().is_none());
    bench.faulty.lose_all();
    assert!(matches!(swap.now_or_never(), Some(Err(WriteError::Unknown(_)))));
    assert!(matches!(get.now_or_never(), Some(Err(ReadError::Unavailable(_)))));
    now(bench.faulty.land_late());
    assert_eq!(bench.stands(), Some(first));
}

#[test]
fn failed_reads_have_no_unknown() {
    let (bench, _) = Bench::held();
    for fault in
        [Fault::NotApplied, Fault::LostRequest, Fault::LostAnswer, Fault::Late(SECOND), Fault::HeldBack]
    {
        bench.faulty.fail_next(Verb::Get, fault);
        assert!(matches!(now(bench.faulty.get(&KEY)), Err(ReadError::Unavailable(_))), "{fault:?}");
    }
    bench.faulty.fail_next(Verb::Scan, Fault::Fatal);
    assert!(matches!(now(bench.faulty.scan(&[KEY])), Err(ReadError::Fatal(_))));
    assert_eq!(bench.faulty.under_way(), 0);
}

#[test]
fn slow_answer_to_a_read_shows_the_state_before_its_delay() {
    let (bench, first) = Bench::held();
    bench.faulty.fail_next(Verb::Get, Fault::SlowAnswer(SECOND));
    bench.faulty.fail_next(Verb::Scan, Fault::SlowRequest(SECOND));
    let mut get = bench.faulty.get(&KEY);
    let mut scan = bench.faulty.scan(&[KEY]);
    assert!(get.as_mut().now_or_never().is_none());
    assert!(scan.as_mut().now_or_never().is_none());
    let second = next(&first);
    assert_eq!(now(bench.direct.compare_and_swap(&KEY, &first, &second)).unwrap(), Swap::Swapped);
    bench.clock.advance(SECOND);
    assert_eq!(get.now_or_never().unwrap().unwrap().entry(), Some(&first));
    assert_eq!(scan.now_or_never().unwrap().unwrap()[0].entry(), Some(&second));
}

#[test]
fn tamper_overwrites_and_wipe_deletes_any_record() {
    let (bench, first) = Bench::held();
    Verb::RECORDS.into_iter().for_each(|verb| bench.faulty.fail_always(verb, Fault::Fatal));
    let intruder = entry(7, 0);
    now(bench.faulty.tamper(&KEY, intruder.clone())).unwrap();
    assert_eq!(bench.stands(), Some(intruder.clone()));
    now(bench.faulty.wipe(&KEY)).unwrap();
    assert_eq!(
        now(bench.direct.get(&KEY)).unwrap(),
        Slot::Vacant(Vacant { last_epoch: Some(intruder.epoch) })
    );
    now(bench.faulty.wipe(&KEY)).unwrap();
    now(bench.faulty.tamper(&KEY, first.clone())).unwrap();
    assert_eq!(bench.stands(), Some(first));
    assert_eq!(bench.faulty.counts().tampered, 4);
}

fn thousand(odds: Odds, seed: u64) -> Vec<Option<Fault>> {
    let mut plan = Plan { chance: Some((odds, fastrand::Rng::with_seed(seed))), ..Plan::default() };
    (0..1000).map(|_| plan.strike(Verb::Get)).collect()
}

#[test]
fn random_faults_follow_odds_and_seed() {
    let odds = Odds { lost_answer: 0.25, hang: 0.25, ..Odds::default() };
    let struck = thousand(odds, 1);
    assert_eq!(struck, thousand(odds, 1));
    assert_ne!(struck, thousand(odds, 2));
    let count = |fault| struck.iter().filter(|&&one| one == fault).count();
    // Four standard deviations of a binomial distribution: 55 either way.
    assert!((195..305).contains(&count(Some(Fault::LostAnswer))));
    assert!((195..305).contains(&count(Some(Fault::Hang))));
    assert_eq!(count(None) + count(Some(Fault::LostAnswer)) + count(Some(Fault::Hang)), 1000);
}

#[test]
fn random_delays_stay_below_the_longest_delay() {
    let longest_delay = Duration::from_secs(1);
    for fault in thousand(Odds { late: 1.0, longest_delay, ..Odds::default() }, 3) {
        assert!(matches!(fault, Some(Fault::Late(delay)) if delay < longest_delay), "{fault:?}");
    }
}

#[test]
fn planned_fault_precedes_the_fault_for_every_call() {
    let (bench, _) = Bench::held();
    bench.faulty.fail_always(Verb::Get, Fault::Fatal);
    bench.faulty.pass_next(Verb::Get);
    bench.faulty.fail_next(Verb::Get, Fault::NotApplied);
    let mut struck = (0..3).map(|_| now(bench.faulty.get(&KEY)));
    assert!(struck.next().unwrap().is_ok());
    assert!(matches!(struck.next(), Some(Err(ReadError::Unavailable(_)))));
    assert!(matches!(struck.next(), Some(Err(ReadError::Fatal(_)))));
    now(bench.faulty.scan(&[KEY])).unwrap();
    bench.faulty.fail_at_random(Odds { fatal: 1.0, ..Odds::default() }, 1);
    bench.faulty.pass_always(Verb::Get);
    now(bench.faulty.get(&KEY)).unwrap();
    now(bench.faulty.scan(&[KEY])).unwrap_err();
    bench.faulty.heal();
    now(bench.faulty.scan(&[KEY])).unwrap();
    assert_eq!((bench.faulty.count(Verb::Get), bench.faulty.waiting()), (4, 0));
}

#[test]
fn doubled_write_arrives_again_after_its_delay() {
    let (bench, first) = Bench::held();
    let (second, third) = (next(&first), next(&next(&first)));
    bench.faulty.fail_next(Verb::CompareAndSwap, Fault::Doubled(SECOND));
    assert_eq!(now(bench.faulty.compare_and_swap(&KEY, &first, &second)).unwrap(), Swap::Swapped);
    assert_eq!(now(bench.faulty.compare_and_swap(&KEY, &second, &third)).unwrap(), Swap::Swapped);
    // The storage forgets, so that the copy finds what it was sent for.
    now(bench.faulty.tamper(&KEY, first)).unwrap();
    bench.clock.advance(SECOND);
    now(bench.faulty.deliver_due());
    assert_eq!((bench.stands(), bench.faulty.counts().doubled), (Some(second), 1));
}
