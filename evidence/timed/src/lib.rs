//! Upper bounds of real time in tests.
//!
//! [`timed`] is the only way to assert one. While an attempt runs, probes measure how late the machine is. A
//! bound that is missed by no more than that is *inconclusive*, and the attempt is repeated; every other
//! failure counts at once. This package is for tests only.
#![forbid(unsafe_code)]

mod attempt;
mod late;
pub mod planted;
mod pressure;
mod probes;
pub mod records;

pub use attempt::{Attempt, Late};
use probes::Probes;
use std::{
    sync::{Mutex, PoisonError},
    thread,
};

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

#[cfg(test)]
mod tests;
