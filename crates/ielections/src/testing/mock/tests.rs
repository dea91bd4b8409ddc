//! Each fault has its documented effect, and no other.

use super::*;
use crate::{
    Claim, Entry, Epoch, Holder, Incarnation, ReadError, Swap, Ttl, TtlStorage, Vacant, Version, WriteError,
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
fn late_write_arrives_after_a_newer_one() {
    let (bench, first) = Bench::held();
    let second = next(&first);
    bench.faulty.fail_next(Verb::TakeOver, Fault::Late(SECOND));
    let ghost = entry(9, 0);
    let error = now(bench.faulty.take_over(&KEY, &first, &ghost)).unwrap_err();
    assert!(matches!(error, WriteError::Unknown(_)));
    // A newer write is answered in between, so the late one is refused.
    assert_eq!(now(bench.faulty.compare_and_swap(&KEY, &first, &second)).unwrap(), Swap::Swapped);
    bench.clock.advance(SECOND);
    now(bench.faulty.land_late());
    assert_eq!(bench.stands(), Some(second.clone()));
    assert_eq!(bench.faulty.counts().refused_late, 1);

    // Without a write in between it applies.
    bench.faulty.fail_next(Verb::TakeOver, Fault::Late(SECOND));
    now(bench.faulty.take_over(&KEY, &second, &ghost)).unwrap_err();
    assert_eq!(bench.stands(), Some(second));
    bench.clock.advance(SECOND);
    now(bench.faulty.land_late());
    assert_eq!(bench.stands(), Some(ghost));
    assert_eq!(bench.faulty.counts().landed_late, 1);
}

#[test]
fn failed_reads_have_no_unknown() {
    let (bench, _) = Bench::held();
    for fault in [Fault::NotApplied, Fault::LostRequest, Fault::LostAnswer, Fault::Late(SECOND)] {
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
