//! The attempts and the loss of a lease; and its release: bounded, and with a true outcome. `cargo xtask check` and
//! `cargo xtask sim` show when a lease is confirmed.

use ielections::{
    Delete, Entry, Epoch, Incarnation, Loss, ReleaseOutcome, Slot, Timing, Ttl, Vacant, Version, WriteError,
    protocol::{Lease, LeaseEvent, LeaseStep, Release, ReleaseEvent, ReleaseStep},
    testing,
    timing::Jitter,
};
use proptest::{collection::vec, prelude::*};
use std::time::Duration;
use vvm_clock::Instant;

const TTL: Duration = Duration::from_secs(20);
const BEGAN: Instant = Instant::from_nanos(1_000_000_000_000);
const TIMING: Timing = match Ttl::new(TTL) {
    Ok(ttl) => Timing::of(ttl),
    Err(_) => panic!("20 s are a TTL"),
};

fn entry(incarnation: u8, epoch: u64) -> Entry {
    Entry { ttl: TIMING.ttl(), ..testing::entry(incarnation, 0, epoch) }
}

fn cause() -> ielections::storage::Cause {
    "made up".into()
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
fn only_what_is_due_is_sent() {
    let mut lease = Lease::begin(entry(1, 7), BEGAN, Jitter::NONE);
    let due = lease.wake_at();
    // A permission that came too late, and a timer that came too early.
    for event in [LeaseEvent::MaySend, LeaseEvent::Woken] {
        let step = lease.on(BEGAN, event, Jitter::NONE);
        assert!(matches!(step, LeaseStep::Sleep(until) if until == due), "{step:?}");
    }
    assert!(matches!(lease.on(due, LeaseEvent::Woken, Jitter::NONE), LeaseStep::Send(_)));
}

/// Only a process that made no attempt and waited for none was suspended.
#[test]
fn lease_whose_first_attempt_was_queued_or_unanswered_until_its_loss_is_no_suspension() {
    for is_sent in [false, true] {
        let mut lease = Lease::begin(entry(1, 7), BEGAN, Jitter::NONE);
        let due = lease.wake_at();
        lease.on(due, LeaseEvent::Woken, Jitter::NONE);
        if is_sent {
            lease.on(due, LeaseEvent::MaySend, Jitter::NONE);
        }
        let step = lease.on(TIMING.loss_at(BEGAN), LeaseEvent::Woken, Jitter::NONE);
        let expected = Loss::StorageUnreachable { last_failure: None };
        assert!(matches!(&step, LeaseStep::Lost(loss) if *loss == expected), "{is_sent}: {step:?}");
    }
}

/// Shows I7.
#[test]
fn loss_names_what_the_storage_shows() {
    let epoch = |number| Epoch::new(number).unwrap();
    let vacant = |last: Option<u64>| Slot::Vacant(Vacant { last_epoch: last.map(epoch) });
    let stolen = |entry| Loss::Stolen { by: Box::new(entry) };
    let went_back = |found: Option<u64>| Loss::EpochWentBack { held: epoch(7), found: found.map(epoch) };
    let table = [
        (testing::held(entry(2, 8)), stolen(entry(2, 8))),
        (testing::held(entry(2, 7)), stolen(entry(2, 7))),
        (testing::held(entry(2, 6)), went_back(Some(6))),
        (vacant(Some(8)), Loss::Vanished),
        (vacant(Some(7)), Loss::Vanished),
        (vacant(Some(6)), went_back(Some(6))),
        (vacant(None), went_back(None)),
    ];
    for (shown, expected) in table {
        let mut lease = Lease::begin(entry(1, 7), BEGAN, Jitter::NONE);
        let step = lease.on(BEGAN, LeaseEvent::Shown(shown), Jitter::NONE);
        assert!(matches!(&step, LeaseStep::Lost(loss) if *loss == expected), "{step:?}, not {expected:?}");
    }
}

/// A delete without an answer may have vacated the slot.
#[test]
fn release_of_a_vacant_slot_is_ours_only_after_a_delete_without_an_answer() {
    let epoch = |number| Epoch::new(number).unwrap();
    let table = [
        (None, 7, ReleaseOutcome::AlreadyGone),
        (Some(WriteError::NotApplied(cause())), 7, ReleaseOutcome::AlreadyGone),
        (Some(WriteError::Unknown(cause())), 7, ReleaseOutcome::Released),
        (Some(WriteError::Unknown(cause())), 8, ReleaseOutcome::AlreadyGone),
    ];
    for (failure, last, expected) in table {
        let mut release = Release::begin(OURS, epoch(7), TIMING);
        let case = format!("{failure:?}, then epoch {last}");
        release.on(BEGAN, ReleaseEvent::MaySend);
        if let Some(failure) = failure {
            let step = release.on(BEGAN, ReleaseEvent::Deleted(Err(failure)));
            assert_eq!(step, ReleaseStep::Sleep(BEGAN.after(TIMING.retry_pause())), "{case}");
        }
        let vacant = Slot::Vacant(Vacant { last_epoch: Some(epoch(last)) });
        let step = release.on(BEGAN, ReleaseEvent::Deleted(Ok(Delete::Mismatch(vacant))));
        assert_eq!(step, ReleaseStep::Done(expected), "{case}");
    }
}

const OURS: Incarnation = Incarnation::from_bytes([1; 16]);

fn held_by(incarnation: Incarnation, epoch: Epoch) -> Slot {
    testing::held(Entry { version: Version { incarnation, write: 3 }, ..testing::entry(0, 0, epoch.get()) })
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

/// The random choices of one run, as a value that proptest can shrink. Read once from start to end; past its end
/// every choice is the simplest one.
#[derive(Clone, Debug)]
struct Tape {
    choices: Vec<u16>,
    next: usize,
}

impl Tape {
    /// Tapes of up to `length` choices.
    fn up_to(length: usize) -> impl Strategy<Value = Self> {
        vec(any::<u16>(), 0..length).prop_map(|choices| Self { choices, next: 0 })
    }

    fn next(&mut self) -> u64 {
        let choice = self.choices.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        choice.into()
    }

    /// A number below `limit`; 0 is the simplest.
    fn below(&mut self, limit: usize) -> usize {
        ((self.next() * limit as u64) >> 16) as usize
    }

    /// `true` with a probability of `percent` in a hundred; `false` is simpler.
    fn chance(&mut self, percent: u64) -> bool {
        (self.next() * 100) >> 16 >= 100 - percent
    }
}
