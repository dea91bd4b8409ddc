//! The leader's side of a successor, event by event. `cargo xtask check` searches both sides together.

use crate::{BEGAN, campaign::renewed};
use ielections::{
    Epoch, Incarnation, ReadError, Slot, Swap, Timing, Ttl, WriteError,
    protocol::{
        Lease, LeaseEvent, LeaseStep,
        successor::{FromStandby, Pairing, Ping, Support, SupportEvent, SupportStep, Withdrawal},
    },
    timing::{Jitter, SupportPeriod},
};
use std::time::Duration;
use vvm_clock::Instant;

const P: Duration = Duration::from_secs(5);

struct Leader {
    lease: Lease,
    support: Support,
    now: Instant,
}

impl Leader {
    fn begin() -> Self {
        let Slot::Held { entry, .. } = renewed(0) else { panic!("vacant") };
        let lease = Lease::begin(entry, BEGAN, Jitter::NONE);
        let support = Support::begin(&lease, period(), BEGAN);
        Self { lease, support, now: BEGAN }
    }

    fn pairing(&self, offer: u8) -> Pairing {
        let held = self.lease.held();
        Pairing { incarnation: held.incarnation(), epoch: held.epoch, offer: [offer; 16] }
    }

    /// Returns the steps that follow `event`, up to a `Sleep`.
    fn on(&mut self, event: SupportEvent) -> Vec<SupportStep> {
        let mut steps = vec![self.support.on(self.now, event, &mut self.lease)];
        while !matches!(steps.last(), Some(SupportStep::Sleep(_) | SupportStep::Lost)) {
            steps.push(self.support.on(self.now, SupportEvent::Woken, &mut self.lease));
        }
        steps
    }

    fn receive(&mut self, message: FromStandby) -> Vec<SupportStep> {
        self.on(SupportEvent::Received(message))
    }

    /// Passes the tests of an offer, each answered at once. Returns the steps after the last answer.
    fn test(&mut self, offer: u8) -> Vec<SupportStep> {
        let pairing = self.pairing(offer);
        let mut steps = self.receive(FromStandby::Offer(pairing));
        let mut sent_at = Vec::<Instant>::new();
        loop {
            let Some(Ping { number, below: None, .. }) = sent(&steps) else {
                assert_eq!(sent_at.len(), 3, "{steps:?}");
                let mut pauses = sent_at.windows(2).map(|pair| pair[0].until(pair[1]));
                assert!(pauses.all(|pause| pause > Duration::ZERO && pause < P / 4), "{sent_at:?}");
                return steps;
            };
            sent_at.push(self.now);
            steps = self.receive(answer(pairing, number, false));
            if let [SupportStep::Sleep(until)] = steps[..]
                && sent_at.len() < 3
            {
                self.now = until;
                steps = self.on(SupportEvent::Woken);
            }
        }
    }

    fn tighten(&mut self, steps: &[SupportStep]) -> Ping {
        let armed = steps.iter().find_map(|step| match step {
            SupportStep::Arm(kill_at) => Some(*kill_at),
            _ => None,
        });
        let kill_at = armed.unwrap_or_else(|| panic!("{steps:?}"));
        sent(&self.on(SupportEvent::Tightened(kill_at))).unwrap()
    }

    fn name(&mut self, offer: u8) -> Ping {
        let steps = self.test(offer);
        self.tighten(&steps)
    }

    fn renew(&mut self) -> (u64, Duration) {
        self.lease.on(self.now, LeaseEvent::Due, Jitter::NONE);
        match self.lease.on(self.now, LeaseEvent::MaySend, Jitter::NONE) {
            LeaseStep::Renew { entry, timeout, .. } => (entry.version.write, timeout),
            step => panic!("{step:?}"),
        }
    }

    fn confirm(&mut self) -> Vec<SupportStep> {
        match self.lease.on(self.now, LeaseEvent::Renewed(Ok(Swap::Swapped)), Jitter::NONE) {
            LeaseStep::Confirmed { version, .. } => self.on(SupportEvent::Confirmed(version)),
            step => panic!("{step:?}"),
        }
    }
}

fn period() -> SupportPeriod {
    SupportPeriod::new(P, Ttl::DEFAULT).unwrap()
}

fn answer(pairing: Pairing, number: u64, acknowledges: bool) -> FromStandby {
    FromStandby::Answer { pairing, number, acknowledges, leaves: false }
}

fn sent(steps: &[SupportStep]) -> Option<Ping> {
    steps.iter().find_map(|step| if let SupportStep::Send(ping) = step { Some(*ping) } else { None })
}

/// Shows N4 and N7. A second successor gets a right again.
#[test]
fn naming_limits_calls_until_a_write_beyond_its_bound_withdraws_it() {
    let (usual, limited) = (Timing::new(Ttl::DEFAULT), Timing::support(period()));
    let mut leader = Leader::begin();
    let mut last_write = 0;
    for offer in [1, 2] {
        let Ping { pairing, number, below, period: named_for } = leader.name(offer);
        let bound = below.unwrap();
        assert!(named_for == period() && bound > last_write, "{bound} after {last_write}");
        let (write, timeout) = leader.renew();
        assert_eq!((write, timeout), (last_write + 1, limited.attempt_timeout()));
        let steps = leader.confirm();
        assert!(matches!(steps[..], [SupportStep::Sleep(_)]), "{steps:?}");
        let leaves = FromStandby::Answer { pairing, number, acknowledges: true, leaves: true };
        let steps = leader.receive(leaves);
        assert!(steps.contains(&SupportStep::Renew), "{steps:?}");
        let (write, timeout) = leader.renew();
        assert_eq!((write, timeout), (bound, limited.attempt_timeout()));
        assert_eq!(leader.confirm()[0], SupportStep::Disarm(Some(Withdrawal::Asked)));
        let (write, timeout) = leader.renew();
        assert_eq!((write, timeout), (bound + 1, usual.attempt_timeout()));
        leader.now = leader.now.after(P * 2);
        let steps = leader.confirm();
        assert!(matches!(steps[..], [SupportStep::Sleep(_)]), "{steps:?}");
        last_write = leader.renew().0;
        leader.confirm();
    }
}

/// Its answer may come after the support period. Shows N3.
#[test]
fn standby_is_not_named_during_a_call_that_the_ttl_limits() {
    let mut leader = Leader::begin();
    leader.renew();
    assert_eq!(leader.test(1), [SupportStep::Sleep(leader.now.after(P / 4))]);
    // That one took long, so another one has to show that the storage is near.
    assert!(leader.confirm().contains(&SupportStep::Renew));
    leader.renew();
    let steps = leader.confirm();
    leader.tighten(&steps);
}

/// Shows N8.
#[test]
fn only_the_answer_of_the_pairing_to_a_ping_counts() {
    let mut leader = Leader::begin();
    let other = Incarnation::from_bytes([9; 16]);
    for strange in [
        Pairing { incarnation: other, ..leader.pairing(1) },
        Pairing { epoch: Epoch::new(99).unwrap(), ..leader.pairing(1) },
    ] {
        assert_eq!(sent(&leader.receive(FromStandby::Offer(strange))), None);
    }
    let pairing = leader.pairing(1);
    let Ping { number, .. } = sent(&leader.receive(FromStandby::Offer(pairing))).unwrap();
    for strange in [answer(leader.pairing(2), number, false), answer(pairing, number + 1, false)] {
        leader.receive(strange);
    }
    leader.now = leader.now.after(Timing::support(period()).attempt_timeout());
    assert_eq!(leader.on(SupportEvent::Woken), [SupportStep::Sleep(Instant::NEVER)], "no test is passed");

    let Ping { pairing, number, .. } = leader.name(1);
    for strange in [answer(leader.pairing(2), number, true), answer(pairing, number + 1, true)] {
        let steps = leader.receive(strange);
        assert!(!steps.iter().any(|step| matches!(step, SupportStep::Extend(_))), "{steps:?}");
    }
    let kill_at = Timing::support(period()).kill_at(leader.now);
    assert_eq!(leader.receive(answer(pairing, number, true))[0], SupportStep::Extend(kill_at));
    leader.receive(FromStandby::Answer { pairing, number: 0, acknowledges: true, leaves: true });
    leader.renew();
    assert_eq!(leader.confirm()[0], SupportStep::Disarm(Some(Withdrawal::Asked)));
    leader.now = leader.now.after(P);
    assert_eq!(sent(&leader.receive(FromStandby::Offer(pairing))), None);
}

/// Shows N2: a message with an earlier or later deadline is that of another support.
#[test]
fn ping_names_a_standby_only_once_its_own_deadline_is_in_force() {
    let mut leader = Leader::begin();
    let steps = leader.test(1);
    let kill_at = Timing::support(period()).kill_at(leader.now);
    assert_eq!(steps[0], SupportStep::Arm(kill_at));
    for other in [kill_at.after(P), kill_at.before(P)] {
        assert_eq!(sent(&leader.on(SupportEvent::Tightened(other))), None);
    }
    // Too late: an answer would count from an instant that is too old.
    leader.now = leader.now.after(P / 4);
    assert_eq!(leader.on(SupportEvent::Tightened(kill_at))[0], SupportStep::Disarm(None));

    let mut leader = Leader::begin();
    leader.test(1);
    let stopping = [SupportStep::Disarm(None), SupportStep::MayStop];
    assert_eq!(leader.on(SupportEvent::Stop)[..2], stopping);
    assert_eq!(sent(&leader.on(SupportEvent::Tightened(kill_at))), None);
}

/// If the storage is slow and not down, the TTL-limited call is confirmed, and the next ones are limited again.
#[test]
fn outage_lifts_the_limit_of_calls_until_a_confirmation() {
    let mut leader = Leader::begin();
    leader.name(1);
    let limited = Timing::support(period()).attempt_timeout();
    for _ in 0..3 {
        assert_eq!(leader.renew().1, limited);
        leader.lease.on(leader.now, unknown(), Jitter::NONE);
        leader.lease.on(
            leader.now,
            LeaseEvent::Read(Err(ReadError::Unavailable("down".into()))),
            Jitter::NONE,
        );
        leader.on(SupportEvent::Woken);
    }
    assert_eq!(leader.renew().1, Timing::new(Ttl::DEFAULT).attempt_timeout());
    leader.confirm();
    assert_eq!(leader.renew().1, limited);
}

fn unknown() -> LeaseEvent {
    LeaseEvent::Renewed(Err(WriteError::Unknown("no answer".into())))
}

/// Shows N1.
#[test]
fn lease_ends_with_its_support_whatever_the_storage_answers_later() {
    let mut leader = Leader::begin();
    leader.name(1);
    leader.renew();
    leader.now = Timing::support(period()).loss_at(leader.now);
    assert_eq!(leader.on(SupportEvent::Woken), [SupportStep::Lost]);
    let step = leader.lease.on(leader.now, LeaseEvent::Renewed(Ok(Swap::Swapped)), Jitter::NONE);
    assert!(matches!(step, LeaseStep::Over), "{step:?}");
}
