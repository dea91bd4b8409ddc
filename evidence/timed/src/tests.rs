//! Verdicts on attempts.

use super::*;
use std::{
    panic::{self, AssertUnwindSafe},
    time::Duration,
};
use vvm_clock::SystemClock;

/// A bound that is missed while a request hangs on a server.
fn missed_beside_a_server_that_hangs(attempt: &Attempt) -> Result<(), Late> {
    attempt.watch("server", Duration::ZERO, || SystemClock::block_for(Duration::from_millis(50)));
    let since = SystemClock::read();
    SystemClock::block_for(Duration::from_millis(60));
    attempt.took("the nap", Duration::from_millis(50), since).map(|_| ())
}

/// How many attempts were made and noted, and whether the test passed.
fn run(mut attempt: impl FnMut(usize, &Attempt) -> Result<(), Late>) -> (usize, usize, bool) {
    let (mut attempts, mut noted) = (0, 0);
    let counted = |this: &Attempt| {
        attempts += 1;
        attempt(attempts, this)
    };
    let decided = panic::catch_unwind(AssertUnwindSafe(|| decide("planted", counted, || {}, |_| noted += 1)));
    (attempts, noted, decided.is_ok())
}

#[test]
fn inconclusive_attempt_is_followed_by_another() {
    let late_once = |number, attempt: &Attempt| match number {
        1 => missed_beside_a_server_that_hangs(attempt),
        _ => Ok(()),
    };
    assert_eq!(run(late_once), (2, 1, true));
}

#[test]
fn test_without_a_decided_attempt_fails() {
    let late = |_, attempt: &Attempt| missed_beside_a_server_that_hangs(attempt);
    assert_eq!(run(late), (ATTEMPTS, ATTEMPTS, false));
}

#[test]
fn missed_bound_that_the_test_swallows_does_not_pass() {
    let swallowed = |number, attempt: &Attempt| {
        if number == 1 {
            let _swallowed = missed_beside_a_server_that_hangs(attempt);
        }
        Ok(())
    };
    assert_eq!(run(swallowed), (2, 1, true));
}

#[test]
fn other_failure_is_not_repeated_however_late_the_machine_is() {
    let wrong = |_, attempt: &Attempt| -> Result<(), Late> {
        let _late = missed_beside_a_server_that_hangs(attempt);
        panic!("wrong output");
    };
    assert_eq!(run(wrong), (1, 0, false));
}

#[test]
fn bound_missed_on_a_punctual_machine_fails_at_once() {
    let slow = |_, attempt: &Attempt| {
        let since = SystemClock::read().before(Duration::from_secs(3600));
        attempt.took("the hour", Duration::from_secs(60), since).map(|_| ())
    };
    assert_eq!(run(slow), (1, 0, false));
}

#[test]
fn deadline_missed_by_30_percent_never_passes() {
    let bound = Duration::from_millis(200);
    let late = || {
        let attempt = Attempt::begin();
        let since = SystemClock::read();
        let happens_at = since.after(bound.mul_f64(1.3));
        let missed = || attempt.within("the planted end", bound, since, || SystemClock::read() >= happens_at);
        let passed = panic::catch_unwind(AssertUnwindSafe(|| missed().is_ok()));
        assert!(!passed.unwrap_or(false), "a deadline that was missed by 30 % passed");
    };
    (0..3).for_each(|_| late());
    loaded(2, || (0..3).for_each(|_| late()));
}

#[test]
#[should_panic(expected = "move this test into a module")]
fn timed_test_outside_a_module_of_that_name_fails() {
    timed("elsewhere", |_| Ok(()));
}
