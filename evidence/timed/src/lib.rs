//! Upper bounds of real time in tests.
//!
//! [`timed`] is the only way to assert one. While an attempt runs, probes measure how late the machine is. A
//! bound that is missed by no more than that is *inconclusive*, and the attempt is repeated; every other
//! failure counts at once. This package is for tests only.
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

/// How many attempts a test has. An attempt of a correct program is inconclusive only while the machine is
/// late, and the next one waits for a calmer moment; a machine that is late five times in a row is no place
/// for a test of real time.
pub const ATTEMPTS: usize = 5;

/// The module that the tests are in, so that `cargo test timed::` selects them and nothing else.
const MODULE: &str = "timed";

/// Makes attempts until one is decided, and returns its result.
///
/// `attempt` is the whole attempt: it sets everything up anew. It passes each [`Late`] on with `?`. Attempts
/// of one process run one at a time, so that they do not delay each other.
///
/// # Panics
/// When an attempt panics, when a bound is missed by more than the machine was late, and when [`ATTEMPTS`]
/// attempts are inconclusive. When the test is not in a module `timed`.
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

    /// Waits for `condition`, which must hold at `since` + `bound`. Returns how long after `since` it was
    /// seen to hold.
    ///
    /// # Errors
    /// The bound was missed by no more than the machine was late.
    ///
    /// # Panics
    /// When the bound was missed by more.
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

    /// Checks that an event that has just happened came by `since` + `bound`. Returns the time since `since`.
    ///
    /// # Errors
    /// The bound was missed by no more than the machine was late.
    ///
    /// # Panics
    /// When the bound was missed by more.
    #[track_caller]
    pub fn took(&self, what: &str, bound: Duration, since: Instant) -> Result<Duration, Late> {
        self.reported(what, bound, SystemClock::read().since(since), since)
    }

    /// Checks a span that another process has measured, between `since` and now.
    ///
    /// # Errors
    /// The bound was missed by no more than the machine was late between `since` and now.
    ///
    /// # Panics
    /// When the bound was missed by more.
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
mod tests;
