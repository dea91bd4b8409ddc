//! A release on one slot: bounded, and with a true outcome.

use crate::tape::Tape;
use ielections::{
    Delete, Epoch, Holder, Incarnation, ReleaseOutcome, Slot, Timing, Ttl, Vacant, Version, WriteError,
    protocol::{Release, ReleaseEvent, ReleaseStep},
};
use proptest::prelude::*;
use vvm_clock::Instant;

const OURS: Incarnation = Incarnation::from_bytes([1; 16]);

fn held(incarnation: Incarnation, epoch: Epoch) -> Slot {
    let entry = ielections::Entry {
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
            0..2 => held(OURS, epoch),
            2 => held(Incarnation::from_bytes([2; 16]), later),
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
