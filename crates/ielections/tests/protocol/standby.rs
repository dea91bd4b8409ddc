//! The standby's side of a successor, event by event. `cargo xtask check` searches both sides together.

use crate::{BEGAN, Counting, campaign::renewed};
use ielections::{
    Claim, Entry, Holder, ReadError, Slot, Swap, Timing, Ttl, WriteError,
    protocol::successor::{FromStandby, Pairing, Ping, Successor, SuccessorEvent, SuccessorStep},
    testing,
    timing::SupportPeriod,
};
use std::{sync::Arc, time::Duration};
use testing_time::MockWallClock;
use vvm_clock::Instant;

const P: Duration = Duration::from_secs(5);
const TTL: Duration = Ttl::DEFAULT.get();
/// W.
const BOUND: u64 = 100;

struct Standby {
    successor: Successor,
    now: Instant,
}

fn period() -> SupportPeriod {
    SupportPeriod::new(P, Ttl::DEFAULT).unwrap()
}

fn timeout() -> Duration {
    Timing::support(period()).attempt_timeout()
}

fn of_leader(write: u64) -> Entry {
    let Slot::Held { entry, .. } = renewed(write) else { panic!("vacant") };
    entry
}

fn idle() -> SuccessorStep {
    SuccessorStep::Sleep(Instant::NEVER)
}

impl Standby {
    fn begin() -> Self {
        let (holder, entropy) = (Holder::new("standby").unwrap(), Arc::new(Counting::default()));
        let wall = Arc::new(MockWallClock::new());
        Self { successor: Successor::begin(holder, Ttl::DEFAULT, entropy, wall), now: BEGAN }
    }

    fn on(&mut self, event: SuccessorEvent) -> SuccessorStep {
        self.successor.on(self.now, event)
    }

    fn offer(&mut self) -> Option<Pairing> {
        match self.on(SuccessorEvent::Found(of_leader(0))) {
            SuccessorStep::Reply(FromStandby::Offer(pairing)) => Some(pairing),
            step => {
                assert_eq!(step, idle());
                None
            }
        }
    }

    fn ping(&mut self, pairing: Pairing, number: u64, below: Option<u64>) -> Option<bool> {
        match self.on(SuccessorEvent::Received(Ping { pairing, number, period: period(), below })) {
            SuccessorStep::Reply(FromStandby::Answer { pairing: of, number: to, acknowledges, .. }) => {
                assert_eq!((of, to), (pairing, number));
                Some(acknowledges)
            }
            SuccessorStep::Sleep(_) => None,
            step => panic!("{step:?}"),
        }
    }

    fn named() -> Self {
        let mut standby = Self::begin();
        let pairing = standby.offer().unwrap();
        assert_eq!(standby.ping(pairing, 1, Some(BOUND)), Some(true));
        standby
    }

    fn send(&mut self) -> SuccessorStep {
        assert_eq!(self.on(SuccessorEvent::Woken), SuccessorStep::Send);
        self.on(SuccessorEvent::MaySend)
    }

    fn claim(&mut self) -> Entry {
        let due = self.now.after(P);
        assert_eq!(self.on(SuccessorEvent::Woken), SuccessorStep::Sleep(due));
        self.now = due;
        assert_eq!(self.send(), SuccessorStep::Read(timeout()));
        let read = SuccessorEvent::Read(Ok(testing::held(of_leader(3))));
        assert_eq!(self.on(read), SuccessorStep::Send);
        match self.on(SuccessorEvent::MaySend) {
            SuccessorStep::TakeOver(from, entry, limit) => {
                assert_eq!((from, limit), (of_leader(3), timeout()));
                entry
            }
            step => panic!("{step:?}"),
        }
    }
}

#[test]
fn offer_that_is_pinged_stands_for_a_support_period() {
    let mut standby = Standby::begin();
    let first = standby.offer().unwrap();
    let pairing = standby.offer().unwrap();
    assert_ne!(first, pairing);
    assert_eq!(standby.ping(first, 1, None), None, "the offer was replaced");
    assert_eq!(standby.ping(pairing, 1, None), Some(false));
    standby.now = standby.now.after(P).before(Duration::from_nanos(1));
    assert_eq!(standby.offer(), None);
    standby.now = BEGAN.after(P);
    assert!(standby.offer().is_some());
}

/// Shows N5 and N8.
#[test]
fn ping_of_the_pairing_counts_once_and_extends_the_wait() {
    let mut standby = Standby::begin();
    let pairing = standby.offer().unwrap();
    let other = Pairing { offer: [0xee; 16], ..pairing };
    assert_eq!(standby.ping(pairing, 1, None), Some(false));
    for (pairing, number) in [(pairing, 1), (other, 2)] {
        assert_eq!(standby.ping(pairing, number, Some(BOUND)), None);
    }
    assert_eq!(standby.successor.named_by(standby.now), None);
    assert_eq!(standby.ping(pairing, 2, Some(BOUND)), Some(true));
    standby.now = standby.now.after(P / 2);
    for (pairing, number, below) in [(pairing, 2, Some(BOUND)), (other, 3, Some(BOUND)), (pairing, 3, None)] {
        assert_eq!(standby.ping(pairing, number, below), None);
    }
    assert_eq!(standby.on(SuccessorEvent::Woken), SuccessorStep::Sleep(BEGAN.after(P)));
    assert_eq!(standby.ping(pairing, 3, Some(BOUND)), Some(true));
    assert_eq!(standby.on(SuccessorEvent::Woken), SuccessorStep::Sleep(standby.now.after(P)));
    assert_eq!(standby.successor.named_by(standby.now), Some((pairing, BOUND)));
    standby.now = standby.now.after(TTL);
    assert_eq!(standby.successor.named_by(standby.now), None);
    assert_eq!(standby.on(SuccessorEvent::Woken), idle());
}

/// The claim may be applied later. Shows I7 and N5.
#[test]
fn standby_that_has_claimed_acknowledges_nothing_and_keeps_its_attempt() {
    let mut standby = Standby::named();
    let pairing = standby.successor.named_by(standby.now).unwrap().0;
    let claim = standby.claim();
    assert_eq!(standby.ping(pairing, 2, Some(BOUND)), None);
    let unknown = || SuccessorEvent::Claimed(Err(WriteError::Unknown("no answer".into())));
    assert_eq!(standby.on(unknown()), SuccessorStep::Send);
    assert_eq!(standby.on(SuccessorEvent::MaySend), SuccessorStep::Read(timeout()), "before another claim");
    standby.now = BEGAN.after(TTL);
    let failed = SuccessorEvent::Read(Err(ReadError::Unavailable("down".into())));
    let retry = standby.now.after(Timing::support(period()).retry_pause());
    assert_eq!(standby.on(failed), SuccessorStep::Sleep(retry), "the right is over, and the attempt is not");
    assert_eq!(standby.successor.abandon(), [claim]);
}

/// Shows I3: it renews first. A storage that went back gives no second right.
#[test]
fn claim_that_is_confirmed_late_is_renewed_before_work_starts() {
    for shows_leader in [false, true] {
        let mut standby = Standby::named();
        let claim = standby.claim();
        standby.now = standby.now.after(TTL / 2);
        assert_eq!(standby.on(SuccessorEvent::Claimed(Ok(Claim::Claimed))), SuccessorStep::Send);
        let SuccessorStep::Renew(from, entry, _) = standby.on(SuccessorEvent::MaySend) else {
            panic!("not renewed");
        };
        assert_eq!((&from, entry.version), (&claim, claim.version.next()));
        let sent_at = standby.now;
        if shows_leader {
            let back = SuccessorEvent::Swapped(Ok(Swap::Mismatch(testing::held(of_leader(3)))));
            assert_eq!(standby.on(back), idle());
        } else {
            let won = SuccessorStep::Won(entry, sent_at);
            assert_eq!(standby.on(SuccessorEvent::Swapped(Ok(Swap::Swapped))), won);
        }
    }
}

/// Otherwise the lease would give the number of the second one again. Shows I7.
#[test]
fn renewal_found_after_a_later_one_is_renewed_again() {
    let mut standby = Standby::named();
    let claim = standby.claim();
    standby.now = standby.now.after(TTL / 2);
    standby.on(SuccessorEvent::Claimed(Ok(Claim::Claimed)));
    let SuccessorStep::Renew(_, first, _) = standby.on(SuccessorEvent::MaySend) else {
        panic!("not renewed")
    };
    standby.on(SuccessorEvent::Swapped(Err(WriteError::Unknown("no answer".into()))));
    standby.on(SuccessorEvent::MaySend);
    let undecided = SuccessorEvent::Read(Ok(testing::held(claim)));
    let SuccessorStep::Sleep(retry) = standby.on(undecided) else { panic!("no pause") };
    standby.now = retry;
    let SuccessorStep::Renew(_, second, _) = standby.send() else { panic!("not tried again") };
    assert_eq!(second.version, first.version.next());
    let refused = SuccessorEvent::Swapped(Ok(Swap::Mismatch(testing::held(first.clone()))));
    assert_eq!(standby.on(refused), SuccessorStep::Send);
    let SuccessorStep::Renew(from, third, _) = standby.on(SuccessorEvent::MaySend) else { panic!("started") };
    assert_eq!((from, third.version), (first, second.version.next()));
}

/// Shows N7.
#[test]
fn standby_that_stops_looks_every_quarter_of_the_period_and_claims_nothing() {
    let mut standby = Standby::begin();
    assert_eq!(standby.on(SuccessorEvent::Stop), SuccessorStep::MayStop);
    let mut standby = Standby::named();
    let mut due = standby.now.after(P / 4);
    assert_eq!(standby.on(SuccessorEvent::Stop), SuccessorStep::Sleep(due));
    for _ in 0..6 {
        standby.now = due;
        assert_eq!(standby.send(), SuccessorStep::Read(timeout()));
        due = standby.now.after(P / 4);
        let permitted = SuccessorEvent::Read(Ok(testing::held(of_leader(BOUND - 1))));
        assert_eq!(standby.on(permitted), SuccessorStep::Sleep(due));
    }
    standby.now = due;
    standby.send();
    let withdrawn = SuccessorEvent::Read(Ok(testing::held(of_leader(BOUND))));
    assert_eq!(standby.on(withdrawn), SuccessorStep::MayStop);
}
