//! `cargo xtask check` and `cargo xtask sim` show when a lease is confirmed.

use ielections::{
    Delete, Entry, Epoch, Incarnation, Loss, ReleaseOutcome, Slot, Swap, Timing, Ttl, Vacant, Version,
    WriteError,
    protocol::{Lease, LeaseEvent, LeaseStep, Release, ReleaseEvent, ReleaseStep},
    testing,
    timing::Jitter,
};
use std::time::Duration;
use vvm_clock::Instant;

const TTL: Duration = Duration::from_secs(20);
const BEGAN: Instant = Instant::from_nanos(1_000_000_000_000);
const TIMING: Timing = match Ttl::new(TTL) {
    Ok(ttl) => Timing::new(ttl),
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
            LeaseStep::Renew { timeout, .. } => {
                sent += 1;
                now = now.after(timeout);
                LeaseEvent::Renewed(Err(WriteError::Unknown(cause())))
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
        assert!(expected.is_mismatch() && expected.tightens_deadline());
    }
}

/// It was rolled back within one leadership. What is held, or may be applied, is no earlier record (I7).
#[test]
fn earlier_record_of_the_same_leadership_is_a_storage_that_went_back() {
    let (epoch, ours) =
        (Epoch::new(7).unwrap(), |write| entry(1, 7).renewed(Version { write, ..entry(1, 7).version }));
    for shown in 0..=4 {
        let mut lease = Lease::begin(ours(2), BEGAN, Jitter::NONE);
        let due = lease.wake_at();
        for _ in 0..2 {
            lease.on(due, LeaseEvent::Due, Jitter::NONE);
            lease.on(due, LeaseEvent::MaySend, Jitter::NONE);
            lease.on(
                due.after(TIMING.attempt_timeout()),
                LeaseEvent::Renewed(Err(WriteError::Unknown(cause()))),
                Jitter::NONE,
            );
        }
        let refused = LeaseEvent::Renewed(Ok(Swap::Mismatch(testing::held(ours(shown)))));
        match lease.on(due, refused, Jitter::NONE) {
            LeaseStep::Lost(loss) if shown < 2 => {
                assert_eq!(loss, Loss::EpochWentBack { held: epoch, found: Some(epoch) });
                assert!(loss.tightens_deadline() && !loss.is_mismatch());
            }
            LeaseStep::Sleep(_) if shown == 2 => {}
            LeaseStep::Confirmed { version, .. } if shown > 2 => assert_eq!(version, ours(shown).version),
            other => panic!("{shown}: {other:?}"),
        }
    }
}

/// Another part of the program may read before a renewal, and be answered after it.
#[test]
fn own_record_that_another_call_shows_is_no_loss() {
    let renewed = |write| entry(1, 7).renewed(Version { write, ..entry(1, 7).version });
    let mut lease = Lease::begin(renewed(2), BEGAN, Jitter::NONE);
    for write in [1, 2] {
        let step = lease.on(BEGAN, LeaseEvent::Shown(testing::held(renewed(write))), Jitter::NONE);
        assert!(matches!(step, LeaseStep::Sleep(until) if until == lease.wake_at()), "{write}: {step:?}");
    }
}

/// Shows I7.
#[test]
fn renewal_without_an_answer_is_read_back_in_the_rest_of_its_time() {
    let mut lease = Lease::begin(entry(1, 7), BEGAN, Jitter::NONE);
    let due = lease.wake_at();
    lease.on(due, LeaseEvent::Woken, Jitter::NONE);
    lease.on(due, LeaseEvent::MaySend, Jitter::NONE);
    let (limit, after) = (TIMING.attempt_timeout(), TIMING.attempt_timeout() / 4);
    let unknown = LeaseEvent::Renewed(Err(WriteError::Unknown(cause())));
    let step = lease.on(due.after(after), unknown, Jitter::NONE);
    assert!(matches!(step, LeaseStep::ReadBack { timeout, .. } if timeout == limit - after), "{step:?}");
}

const OURS: Incarnation = Incarnation::from_bytes([1; 16]);

#[test]
fn release_ends_with_the_true_outcome() {
    let epoch = |number| Epoch::new(number).unwrap();
    let vacant = |last| Ok(Delete::Mismatch(Slot::Vacant(Vacant { last_epoch: Some(epoch(last)) })));
    let held_by_another = || Ok(Delete::Mismatch(testing::held(entry(2, 8))));
    let not_applied = || Err(WriteError::NotApplied(cause()));
    let unknown = || Err(WriteError::Unknown(cause()));
    let table = [
        (vec![Ok(Delete::Deleted)], ReleaseOutcome::Released),
        (vec![held_by_another()], ReleaseOutcome::AlreadyGone),
        (vec![unknown(), held_by_another()], ReleaseOutcome::AlreadyGone),
        (vec![vacant(7)], ReleaseOutcome::AlreadyGone),
        (vec![not_applied(), vacant(7)], ReleaseOutcome::AlreadyGone),
        // A delete without an answer may have vacated the slot.
        (vec![unknown(), vacant(7)], ReleaseOutcome::Released),
        (vec![unknown(), unknown(), vacant(7)], ReleaseOutcome::Released),
        (vec![unknown(), not_applied(), vacant(7)], ReleaseOutcome::Released),
        (vec![unknown(), vacant(8)], ReleaseOutcome::AlreadyGone),
        // Three deletes at most (I10).
        (vec![not_applied(), unknown(), not_applied()], ReleaseOutcome::LeftToExpire),
        (vec![Err(WriteError::Fatal(cause()))], ReleaseOutcome::LeftToExpire),
        (vec![unknown(), Err(WriteError::Replaced(cause()))], ReleaseOutcome::LeftToExpire),
    ];
    for (answers, outcome) in table {
        let case = format!("{answers:?}");
        let mut release = Release::begin(OURS, epoch(7), TIMING);
        let mut left = answers.len();
        for answer in answers {
            let timeout = TIMING.attempt_timeout();
            let delete = ReleaseStep::Delete { incarnation: OURS, epoch: epoch(7), timeout };
            assert_eq!(release.on(BEGAN, ReleaseEvent::MaySend), delete, "{case}");
            let step = release.on(BEGAN, ReleaseEvent::Deleted(answer));
            left -= 1;
            if left == 0 {
                assert_eq!(step, ReleaseStep::Done(outcome), "{case}");
            } else {
                assert_eq!(step, ReleaseStep::Sleep(BEGAN.after(TIMING.retry_pause())), "{case}");
                assert_eq!(release.on(BEGAN, ReleaseEvent::Woken), ReleaseStep::Send, "{case}");
            }
        }
    }
}
