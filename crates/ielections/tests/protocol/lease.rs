//! A lease on one slot of a storage, with lost, late and unsent calls and foreign writes; and its release: bounded,
//! and with a true outcome.

use crate::tape::Tape;
use ielections::{
    Delete, Entry, Epoch, Holder, Incarnation, Loss, ReadError, ReleaseOutcome, Slot, Swap, Timing, Ttl,
    Vacant, Version, WriteError,
    protocol::{Lease, LeaseEvent, LeaseStep, Release, ReleaseEvent, ReleaseStep},
    timing::Jitter,
};
use proptest::prelude::*;
use std::time::Duration;
use vvm_clock::Instant;

const TTL: Duration = Duration::from_secs(20);
const BEGAN: Instant = Instant::from_nanos(1_000_000_000_000);
const TIMING: Timing = match Ttl::new(TTL) {
    Ok(ttl) => Timing::of(ttl),
    Err(_) => panic!("20 s are a TTL"),
};

fn entry(incarnation: u8, epoch: u64) -> Entry {
    Entry {
        holder: Holder::new("leader").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([incarnation; 16]), write: 0 },
        ttl: TIMING.ttl(),
        epoch: Epoch::new(epoch).unwrap(),
    }
}

/// A request in flight, and its fate.
#[derive(Debug)]
struct Parcel {
    arrives_at: Instant,
    renewal: Option<(Entry, Entry)>,
    /// Set when it has arrived.
    found: Option<Result<(), Slot>>,
}

/// The slot, the network before it, and one lease.
struct LeaseRun {
    tape: Tape,
    now: Instant,
    lease: Lease,
    slot: Slot,
    /// The applied writes: version, when they were sent, when they were applied.
    applied: Vec<(Version, Instant, Instant)>,
    sent: Vec<(Version, Instant)>,
    under_way: Vec<Parcel>,
    wake_at: Instant,
    may_send_at: Option<Instant>,
    /// When the call is answered, and how, if its parcel does not define it.
    answer: Option<(Instant, usize, Option<WriteError>)>,
    tampered: bool,
    /// An answer reported a replaced storage.
    replaced: bool,
}

fn cause() -> ielections::storage::Cause {
    "made up".into()
}

impl LeaseRun {
    fn begin(tape: Tape) -> Self {
        let held = entry(1, 7);
        let lease = Lease::begin(held.clone(), BEGAN, Jitter::NONE);
        Self {
            wake_at: lease.wake_at(),
            applied: vec![(held.version, BEGAN, BEGAN)],
            sent: vec![(held.version, BEGAN)],
            slot: Slot::Held { entry: held, proven_age: None },
            now: BEGAN,
            under_way: Vec::new(),
            may_send_at: None,
            answer: None,
            tampered: false,
            replaced: false,
            tape,
            lease,
        }
    }

    /// Carries out the requests that have arrived by `until`, in the order of arrival.
    fn land(&mut self, until: Instant) {
        loop {
            let next = self.under_way.iter_mut().filter(|parcel| parcel.found.is_none());
            let Some(parcel) = next.min_by_key(|parcel| parcel.arrives_at) else { return };
            if parcel.arrives_at > until {
                return;
            }
            let standing = self.slot.entry().map(|entry| entry.version);
            parcel.found = Some(match &parcel.renewal {
                Some((held, entry)) if standing == Some(held.version) => {
                    let sent = self.sent.iter().find(|(version, _)| *version == entry.version).unwrap();
                    self.applied.push((entry.version, sent.1, parcel.arrives_at));
                    self.slot = Slot::Held { entry: entry.clone(), proven_age: None };
                    Ok(())
                }
                _ => Err(self.slot.clone()),
            });
        }
    }

    /// Sends a request and decides its fate.
    fn send(&mut self, renewal: Option<(Entry, Entry)>, timeout: Duration) {
        let out = self.tape.span(timeout);
        let back = self.tape.span(timeout.saturating_sub(out));
        let (arrives_at, error) = match self.tape.below(10) {
            0..4 => (self.now.after(out), None),
            4 | 5 => (self.now.after(out), Some(WriteError::Unknown(cause()))),
            6 => (self.now.after(self.tape.span(TTL * 2)), Some(WriteError::Unknown(cause()))),
            7 => (Instant::NEVER, Some(WriteError::Unknown(cause()))),
            8 => (Instant::NEVER, Some(WriteError::NotApplied(cause()))),
            _ if self.tape.chance(10) => (Instant::NEVER, Some(WriteError::Replaced(cause()))),
            _ => (Instant::NEVER, Some(WriteError::Fatal(cause()))),
        };
        // A call that takes its whole time has timed out.
        let answered_at =
            if self.tape.chance(30) { self.now.after(timeout) } else { self.now.after(out + back) };
        self.answer = Some((answered_at, self.under_way.len(), error));
        self.under_way.push(Parcel { arrives_at, renewal, found: None });
    }

    fn answered(&mut self, parcel: usize, error: Option<WriteError>) -> LeaseEvent {
        self.replaced |= matches!(error, Some(WriteError::Replaced(_)));
        let parcel = &self.under_way[parcel];
        let found = parcel.found.clone();
        match (&parcel.renewal, error, found) {
            (Some(_), Some(error), _) => LeaseEvent::Swapped(Err(error)),
            (Some(_), None, Some(Ok(()))) => LeaseEvent::Swapped(Ok(Swap::Swapped)),
            (Some(_), None, Some(Err(slot))) => LeaseEvent::Swapped(Ok(Swap::Mismatch(slot))),
            (None, None, Some(Err(slot))) => LeaseEvent::Read(Ok(slot)),
            (None, Some(WriteError::Fatal(cause)), _) => LeaseEvent::Read(Err(ReadError::Fatal(cause))),
            (None, Some(WriteError::Replaced(cause)), _) => LeaseEvent::Read(Err(ReadError::Replaced(cause))),
            (None, ..) => LeaseEvent::Read(Err(ReadError::Unavailable(cause()))),
            (Some(_), None, None) => panic!("answered before it arrived"),
        }
    }

    /// Delivers one event, and checks the step of the lease. Returns `false` when the lease is over.
    fn step(&mut self) -> Result<bool, TestCaseError> {
        if self.tape.chance(2) {
            self.slot = match self.tape.below(4) {
                0 => Slot::Vacant(Vacant { last_epoch: Epoch::new(7).ok() }),
                1 => Slot::Vacant(Vacant { last_epoch: None }),
                2 => Slot::Held { entry: entry(2, 6), proven_age: None },
                _ => Slot::Held { entry: entry(2, 8), proven_age: None },
            };
            self.tampered = true;
        }
        let answered_at = self.answer.as_ref().map_or(Instant::NEVER, |answer| answer.0);
        let may_send_at = self.may_send_at.unwrap_or(Instant::NEVER);
        let due = self.wake_at.min(answered_at).min(may_send_at);
        // The process may be stopped for a while.
        let stall = if self.tape.chance(5) { self.tape.span(TTL) } else { Duration::ZERO };
        self.now = self.now.max(due).after(stall);
        self.land(self.now);
        prop_assert!(!self.replaced, "held on a replaced storage");
        let event = if let Some((_, parcel, error)) = self.answer.take_if(|answer| answer.0 <= self.now) {
            self.answered(parcel, error)
        } else if may_send_at <= self.now {
            self.may_send_at = None;
            LeaseEvent::MaySend
        } else {
            self.wake_at = Instant::NEVER;
            LeaseEvent::Woken
        };
        let before = self.lease.confirmed_sent_at();
        let jitter = Jitter::from_random(u64::MAX / 7 * self.tape.below(8) as u64);
        let step = self.lease.on(self.now, event, jitter);
        prop_assert!(self.lease.confirmed_sent_at() >= before, "validity moved back");
        self.judge(step)
    }

    fn judge(&mut self, step: LeaseStep) -> Result<bool, TestCaseError> {
        let loss_at = TIMING.loss_at(self.lease.confirmed_sent_at());
        match step {
            LeaseStep::Lost(loss) => {
                self.judge_loss(&loss)?;
                for event in [LeaseEvent::Woken, LeaseEvent::MaySend, LeaseEvent::Swapped(Ok(Swap::Swapped))]
                {
                    let step = self.lease.on(self.now, event, Jitter::NONE);
                    prop_assert!(matches!(step, LeaseStep::Over), "{step:?} revives a lost lease");
                }
                return Ok(false);
            }
            LeaseStep::Over => return Err(TestCaseError::fail("over without a loss")),
            LeaseStep::Sleep(until) => self.wake_at = until,
            LeaseStep::Send(until) => {
                self.wake_at = until;
                let longest = if self.tape.chance(10) { TTL } else { TTL / 50 };
                let queued = self.tape.span(longest);
                self.may_send_at = Some(self.now.after(queued));
            }
            LeaseStep::Swap { held, entry, timeout, loss_at } => {
                prop_assert!(timeout <= TTL / 10);
                prop_assert!(
                    self.sent.iter().all(|(version, _)| *version != entry.version),
                    "a version twice"
                );
                prop_assert_eq!(&held, self.lease.held());
                self.sent.push((entry.version, self.now));
                self.wake_at = loss_at;
                self.send(Some((held, entry)), timeout);
            }
            LeaseStep::ReadBack { timeout, loss_at } => {
                let attempt_ends = self.sent.last().unwrap().1.after(TTL / 10);
                prop_assert!(self.now.after(timeout) <= attempt_ends, "an attempt outlives its time");
                self.wake_at = loss_at;
                self.send(None, timeout);
            }
            LeaseStep::Confirmed { sent_at, wake_at } => {
                let version = self.lease.held().version;
                let confirmed = self.applied.iter().find(|applied| applied.0 == version);
                let Some(&(_, really_sent_at, landed_at)) = confirmed else {
                    return Err(TestCaseError::fail("confirmed a write that was never applied (I7)"));
                };
                prop_assert_eq!(sent_at, really_sent_at, "not counted from its send (I3)");
                prop_assert_eq!(sent_at, self.lease.confirmed_sent_at());
                prop_assert!(landed_at >= sent_at && landed_at <= self.now);
                prop_assert!(self.now < TIMING.loss_at(sent_at), "confirmed when already lost");
                self.wake_at = wake_at;
            }
        }
        prop_assert!(self.now < loss_at, "still held at {:?}, past the loss at {loss_at:?}", self.now);
        prop_assert!(self.wake_at <= loss_at, "no wake-up at the loss");
        Ok(true)
    }

    fn judge_loss(&self, loss: &Loss) -> Result<(), TestCaseError> {
        let ours = |slot: &Slot| {
            slot.entry().is_some_and(|entry| self.sent.iter().any(|(version, _)| *version == entry.version))
        };
        match loss {
            Loss::Stolen { .. } | Loss::Vanished | Loss::EpochWentBack { .. } => {
                prop_assert!(self.tampered && !ours(&self.slot), "{loss:?}, but the record is ours");
                let went_back = self.slot.last_epoch() < Some(self.lease.held().epoch);
                prop_assert_eq!(went_back, matches!(loss, Loss::EpochWentBack { .. }), "{:?}", self.slot);
            }
            Loss::StorageReplaced { .. } => prop_assert!(self.replaced),
            Loss::Suspended | Loss::StorageUnreachable { .. } => {}
            other => return Err(TestCaseError::fail(format!("unexpected loss {other:?}"))),
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    /// I3 and I7 on the leader's side, and rules 1 to 5 of the lease.
    #[test]
    fn lease_is_confirmed_only_by_applied_writes_from_their_send(tape in Tape::up_to(600)) {
        let mut run = LeaseRun::begin(tape);
        for _ in 0..400 {
            if !run.step()? {
                break;
            }
        }
    }
}

#[test]
fn three_attempts_fit_even_if_each_times_out() {
    let mut lease = Lease::begin(entry(1, 7), BEGAN, Jitter::NONE);
    let mut now = lease.wake_at();
    let mut event = LeaseEvent::Woken;
    let mut sent = 0;
    loop {
        event = match lease.on(now, event, Jitter::NONE) {
            LeaseStep::Send(_) => LeaseEvent::MaySend,
            LeaseStep::Swap { timeout, .. } => {
                sent += 1;
                now = now.after(timeout);
                LeaseEvent::Swapped(Err(WriteError::Unknown(cause())))
            }
            LeaseStep::Sleep(until) => {
                now = until;
                LeaseEvent::Woken
            }
            LeaseStep::Lost(Loss::StorageUnreachable { last_failure: Some(_) }) => break,
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(sent, 3);
    assert_eq!(now, TIMING.loss_at(BEGAN));
}

#[test]
fn lease_woken_after_its_loss_instant_is_lost_without_a_call() {
    let mut lease = Lease::begin(entry(1, 7), BEGAN, Jitter::NONE);
    let step = lease.on(TIMING.loss_at(BEGAN), LeaseEvent::Woken, Jitter::NONE);
    assert!(matches!(step, LeaseStep::Lost(Loss::Suspended)), "{step:?}");
}

const OURS: Incarnation = Incarnation::from_bytes([1; 16]);

fn held_by(incarnation: Incarnation, epoch: Epoch) -> Slot {
    let entry = Entry {
        holder: Holder::new("leader").unwrap(),
        version: Version { incarnation, write: 3 },
        ttl: Ttl::DEFAULT,
        epoch,
    };
    Slot::Held { entry, proven_age: None }
}

fn is_ours(slot: &Slot) -> bool {
    slot.entry().is_some_and(|entry| entry.incarnation() == OURS)
}

fn delete(slot: &mut Slot, epoch: Epoch) -> Delete {
    if is_ours(slot) {
        *slot = Slot::Vacant(Vacant { last_epoch: Some(epoch) });
        return Delete::Deleted;
    }
    Delete::Mismatch(slot.clone())
}

proptest! {
    #[test]
    fn release_ends_with_the_true_outcome(mut tape in Tape::up_to(40)) {
        let (epoch, later) = (Epoch::new(7).unwrap(), Epoch::new(8).unwrap());
        let mut slot = match tape.below(4) {
            0..2 => held_by(OURS, epoch),
            2 => held_by(Incarnation::from_bytes([2; 16]), later),
            _ => Slot::Vacant(Vacant { last_epoch: Some(epoch) }),
        };
        let was_ours = is_ours(&slot);
        let mut release = Release::begin(OURS, epoch, Timing::of(Ttl::DEFAULT));
        let (mut now, mut deletes, mut event) = (Instant::ORIGIN, 0, ReleaseEvent::MaySend);
        let (mut unanswered, mut deleted_by_us) = (0, false);
        let handback = loop {
            event = match release.on(now, event) {
                ReleaseStep::Send => ReleaseEvent::MaySend,
                ReleaseStep::Sleep(until) => {
                    prop_assert!(until > now, "no pause between attempts");
                    now = until;
                    ReleaseEvent::Woken
                }
                ReleaseStep::Delete { incarnation, epoch: named, .. } => {
                    prop_assert_eq!((incarnation, named), (OURS, epoch));
                    deletes += 1;
                    prop_assert!(deletes <= 3, "a release without end (I10)");
                    if unanswered > 0 && tape.chance(30) {
                        unanswered -= 1;
                        deleted_by_us |= delete(&mut slot, epoch) == Delete::Deleted;
                    }
                    ReleaseEvent::Deleted(match tape.below(6) {
                        0 | 1 => {
                            let outcome = delete(&mut slot, epoch);
                            deleted_by_us |= outcome == Delete::Deleted;
                            Ok(outcome)
                        }
                        2 => {
                            deleted_by_us |= delete(&mut slot, epoch) == Delete::Deleted;
                            Err(WriteError::Unknown("lost answer".into()))
                        }
                        3 => {
                            unanswered += 1;
                            Err(WriteError::Unknown("late".into()))
                        }
                        4 => Err(WriteError::NotApplied("busy".into())),
                        _ => Err(WriteError::Fatal("no credentials".into())),
                    })
                }
                ReleaseStep::Done(handback) => break handback,
            };
        };
        match handback {
            ReleaseOutcome::Released => prop_assert!(deleted_by_us || !was_ours && !is_ours(&slot)),
            ReleaseOutcome::AlreadyGone => prop_assert!(!is_ours(&slot) && !deleted_by_us),
            ReleaseOutcome::LeftToExpire => {}
            ReleaseOutcome::StillArmed => prop_assert!(false, "a release knows of no deadline"),
        }
    }
}
