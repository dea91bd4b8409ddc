//! Upper bounds of real time in tests. [`timed`] is the only way to assert one. While an attempt runs, probes measure
//! how late the machine is. A bound that is missed by no more than that is *inconclusive*, and the attempt is repeated;
//! every other failure counts at once. This package is for tests only.
#![forbid(unsafe_code)]

mod late;
mod probes;
pub mod records;

use late::{Millis, Missed, Verdict, judge};
use probes::Probes;
pub use probes::loaded;
use std::{
    fmt,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// How many attempts a test has. An attempt of a correct program is inconclusive only while the machine is late, and
/// the next one waits for a calmer moment; a machine late five times in a row is no place for real time.
pub const ATTEMPTS: usize = 5;

/// The module that the tests are in, so that `cargo test timed::` selects them and nothing else.
const MODULE: &str = "timed";

/// Makes attempts until one is decided, and returns its result. `attempt` is the whole attempt: it sets everything up
/// anew, and passes each [`Late`] on with `?`. A process runs one at a time, so that none delays another. Panics when
/// an attempt panics, when a bound is missed by more than the machine was late, when [`ATTEMPTS`] attempts are
/// inconclusive, and when the test is not in a module `timed`.
pub fn timed<T>(name: &str, attempt: impl FnMut(&Attempt) -> Result<T, Late>) -> T {
    static ALONE: Mutex<()> = Mutex::new(());
    // The lock protects no data, so that a failed test does not matter.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    check_module();
    decide(name, attempt, Probes::wait_for_calm, |late| records::add(name, late))
}

/// Pauses before each attempt but the first, and notes each that is inconclusive.
fn decide<T>(
    name: &str,
    mut attempt: impl FnMut(&Attempt) -> Result<T, Late>,
    pause: impl Fn(),
    mut note: impl FnMut(&str),
) -> T {
    let mut inconclusive = Vec::new();
    for number in 1..=ATTEMPTS {
        if number > 1 {
            pause();
        }
        let this = Attempt::begin();
        let result = attempt(&this);
        match (result, this.late()) {
            (Ok(value), None) => return value,
            (_, Some(late)) => {
                let line = format!("attempt {number}: {late}");
                println!("{name}: inconclusive, {line}");
                note(&line);
                inconclusive.push(line);
            }
            (Err(_), None) => panic!("{name}: a `Late` of another attempt was returned"),
        }
    }
    panic!("{name}: not decided: all attempts were inconclusive:\n{}", inconclusive.join("\n"));
}

/// Tests run in threads that have their names. With one test at a time, they run in the main thread.
fn check_module() {
    let thread = thread::current();
    if let Some((modules, _)) = thread.name().and_then(|name| name.rsplit_once("::")) {
        assert!(
            modules.split("::").any(|module| module == MODULE),
            "move this test into a module `{MODULE}`"
        );
    }
}

/// Between two looks at a condition: looks must not take the processor from the processes.
const PACE: Duration = Duration::from_millis(1);

/// When a condition that still does not hold is given up: this long after its bound.
const HANGS: Duration = Duration::from_secs(30);

/// One attempt of a test, measured by probes from its beginning to its end.
pub struct Attempt {
    probes: Probes,
    missed: Mutex<Option<Missed>>,
}

/// A bound was missed, and the machine was late for at least as long. Only [`Attempt`]'s checks make one.
#[derive(Debug)]
#[must_use = "pass it on with `?`"]
pub struct Late(());

impl Attempt {
    fn begin() -> Self {
        Self { probes: Probes::start(), missed: Mutex::new(None) }
    }

    /// Waits for `condition`, which must hold at `since` + `bound`. Returns how long after `since` it was seen to hold,
    /// or [`Late`] if the bound was missed by no more than the machine was late. Panics if it was missed by more.
    #[track_caller]
    pub fn within(
        &self,
        what: &str,
        bound: Duration,
        since: Instant,
        mut condition: impl FnMut() -> bool,
    ) -> Result<Duration, Late> {
        let give_up_at = since.after(bound).after(HANGS);
        while !condition() {
            if SystemClock::read() > give_up_at {
                break;
            }
            SystemClock::block_for(PACE);
        }
        self.took(what, bound, since)
    }

    /// As [`within`](Self::within), for what has just happened. Returns the time since `since`.
    #[track_caller]
    pub fn took(&self, what: &str, bound: Duration, since: Instant) -> Result<Duration, Late> {
        self.reported(what, bound, SystemClock::read().since(since), since)
    }

    /// Checks a span that another process has measured, between `since` and now, as [`within`](Self::within) does.
    #[track_caller]
    pub fn reported(
        &self,
        what: &str,
        bound: Duration,
        took: Duration,
        since: Instant,
    ) -> Result<Duration, Late> {
        let late = self.probes.late(since, SystemClock::read());
        match judge(what, bound, took, late) {
            Verdict::Held => {
                println!("{what} took {} of {}", Millis(took), Millis(bound));
                Ok(took)
            }
            Verdict::Inconclusive(missed) => {
                *self.missed.lock().unwrap_or_else(PoisonError::into_inner) = Some(missed);
                Err(Late(()))
            }
            Verdict::Failed(missed) => panic!("{missed}"),
        }
    }

    /// Adds a probe that sends `request` again and again, on a connection of its own. A healthy server
    /// answers within `normal`. The request needs its own time-out.
    pub fn watch(&self, what: &str, normal: Duration, request: impl FnMut() + Send + 'static) {
        self.probes.add(what, normal, request);
    }

    /// Returns the bound whose miss was inconclusive, even if the test did not pass [`Late`] on.
    fn late(&self) -> Option<Missed> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Attempt").field("missed", &self.missed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{self, AssertUnwindSafe};

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
        let decided =
            panic::catch_unwind(AssertUnwindSafe(|| decide("planted", counted, || {}, |_| noted += 1)));
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
            let missed =
                || attempt.within("the planted end", bound, since, || SystemClock::read() >= happens_at);
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
}
