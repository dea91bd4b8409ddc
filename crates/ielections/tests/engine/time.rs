//! Deadlines while calls hang, and while the engine does not run.

use crate::{Bench, TTL, candidacy, lead, on};
use ielections::{
    AcquireError, InsufficientTime, Loss, Timing, Ttl,
    testing::mock::{Fault, Verb},
};
use std::time::Duration;
use vvm_clock::Clock;

const TIMING: Timing = Timing::of(Ttl::DEFAULT);

/// Exact for every lease, while all calls in flight hang (I3).
#[test]
fn loss_is_at_its_instant_while_every_call_hangs() {
    let bench = Bench::new().in_flight(1);
    on(&bench.clock, async {
        let process = bench.process();
        let leaderships = [lead(&process, 0).await, lead(&process, 1).await];
        let sent_at = leaderships.each_ref().map(|one| one.standing().kill_at().before(TTL * 8 / 10));
        for verb in Verb::RECORDS {
            bench.faulty.fail_always(verb, Fault::Hang);
        }
        for (leadership, sent_at) in leaderships.iter().zip(sent_at) {
            let loss = leadership.lost().await;
            assert!(matches!(loss, Loss::StorageUnreachable { .. }), "{loss:?}");
            assert_eq!(bench.clock.now(), TIMING.loss_at(sent_at));
            assert_eq!(leadership.standing().kill_at(), TIMING.kill_at(sent_at));
        }
        assert!(process.trigger.fired().is_empty());
        bench.clock.sleep_until(TIMING.kill_at(sent_at[0])).await;
        assert!(process.trigger.check(), "nothing would have ended this process");
    });
}

/// The engine has not run, so no loss is set: the standing compares the time itself.
#[test]
fn ensure_fails_past_the_deadline() {
    let bench = Bench::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let process = bench.process();
        let leadership = lead(&process, 0).await;
        let kill_at = leadership.standing().kill_at();
        bench.clock.advance_to(kill_at.before(Duration::from_nanos(1)));
        assert_eq!(leadership.ensure(Duration::ZERO), Ok(()));
        bench.clock.advance_to(kill_at);
        assert_eq!(leadership.standing().loss(), None, "the engine has run");
        let ensured = leadership.ensure(Duration::ZERO);
        assert!(matches!(ensured, Err(InsufficientTime::TooShort { .. })), "{ensured:?}");
        assert_eq!(leadership.lost().await, Loss::Suspended);
        assert_eq!(bench.probe.count(Verb::CompareAndSwap), 0, "a call after the loss");
        leadership.release().await;
    });
}

/// The driver's limit is above [`Ttl::MIN`].
#[test]
fn ttl_below_the_limit_of_the_driver_is_refused() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let least = TTL + Duration::from_nanos(1);
        *bench.probe.min_ttl.lock().unwrap() = Some(least);
        let refused = bench.process().elections.acquire(candidacy(0)).await;
        let Err(AcquireError::TtlTooShort { ttl, least: stated }) = refused else { panic!("{refused:?}") };
        assert_eq!((ttl, stated), (TTL, least));
        assert!(bench.probe.calls().is_empty());
    });
}
