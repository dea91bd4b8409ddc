//! Tests that failed in company are run again, each alone, at a moment at which the machine runs, and at most twice; what
//! fails then, too, has failed.
//!
//! Many tests here are about real time and real processes, run beside each other on as little as two processors, of which a
//! virtual machine may be given less than half for a moment (measured: 10 to 40 % taken by others, standstills of 0.1 to
//! 0.4 s on an idle machine). A TTL that a test can wait for is not always longer than that. What a test is about is not
//! concerned: a bug fails alone, too. Nothing is hushed up: each of them is named in the last lines of `cargo xtask ci`, and
//! more than a few are a failure at once.

use super::limit;
use crate::workspace::cargo;
use std::{
    io::{self, BufRead as _, BufReader, PipeReader},
    path::Path,
    process::{Command, ExitStatus},
    sync::mpsc,
    thread,
    time::Duration,
};
use vvm_clock::SystemClock;

/// How many tests may be run again: a machine that is short of time fails a few in a thousand.
const MOST: usize = 8;

/// How often one is: the moment may be as bad again.
const ATTEMPTS: usize = 2;

/// For how long a machine must not have stood still for [`STANDSTILL`] to count as one that runs, and how long that is
/// waited for, in all: CI has its own limit.
const CALM: Duration = Duration::from_secs(2);
const STANDSTILL: Duration = Duration::from_millis(50);
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// How long output may take to come to its end after its program has: whatever a test left behind holds it open.
const DRAINING: Duration = Duration::from_secs(10);

/// A test program that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Failed {
    /// As cargo selects it: `--test http`.
    target: Vec<String>,
    /// Which of its tests; none where it ended without saying so.
    tests: Vec<String>,
}

/// Runs `cargo test` with these arguments, and what fails once more. The tests that held only then.
///
/// # Errors
/// What failed twice, or why nothing could be run again.
pub(super) fn run(command: &mut Command, arguments: &[String], root: &Path) -> Result<Vec<String>, String> {
    let (status, lines) = heard(command)?;
    if status.success() {
        return Ok(Vec::new());
    }
    let failed = failed(&lines);
    let count: usize = failed.iter().map(|one| one.tests.len()).sum();
    if failed.is_empty() || count > MOST || failed.iter().any(|one| one.tests.is_empty()) {
        return Err(status.to_string());
    }
    let mut held = Vec::new();
    let give_up_at = SystemClock::read().after(PATIENCE);
    for Failed { target, tests } in failed {
        for test in tests {
            let mut holds = false;
            for _ in 0..ATTEMPTS {
                wait_for_calm(give_up_at.since(SystemClock::read()));
                println!("\nci: {test} failed, and is run alone");
                let mut again = cargo();
                again.args(selected(arguments, &target)).args(["--", "--exact", &test]).current_dir(root);
                again.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
                let (status, lines) = heard(&mut again)?;
                // A test that was not there has not held.
                holds = status.success()
                    && lines.iter().any(|line| line.starts_with("test result: ok. 1 passed"));
                if holds {
                    break;
                }
            }
            if !holds {
                return Err(format!("{test} failed, and alone again"));
            }
            held.push(test);
        }
    }
    Ok(held)
}

/// Waits until the machine runs, for so long at most.
pub(super) fn wait_for_calm(patience: Duration) {
    const NAP: Duration = Duration::from_millis(5);
    let give_up_at = SystemClock::read().after(patience);
    let mut calm_since = SystemClock::read();
    loop {
        let before = SystemClock::read();
        SystemClock::block_for(NAP);
        let now = SystemClock::read();
        if now.since(before) > NAP + STANDSTILL {
            calm_since = now;
        }
        if now.since(calm_since) >= CALM || now >= give_up_at {
            return;
        }
    }
}

/// The arguments of `cargo test` for this program alone. The features have to stay those of all packages, or everything
/// would be built anew.
fn selected(arguments: &[String], target: &[String]) -> Vec<String> {
    let all = arguments.iter().filter(|argument| *argument != "--no-fail-fast");
    all.chain(target).cloned().collect()
}

/// Runs it, passes on what it says, and returns that, too.
fn heard(command: &mut Command) -> Result<(ExitStatus, Vec<String>), String> {
    let mut hear = || -> io::Result<_> {
        let (reader, writer) = io::pipe()?;
        // One pipe for both, so that what is said about a program stands behind what it has said.
        command.stdout(writer.try_clone()?).stderr(writer);
        let (sender, receiver) = mpsc::channel();
        thread::Builder::new().name("ci-output".into()).spawn(move || pass_on(reader, &sender))?;
        let status = limit::run(command)?;
        // Our own ends of the pipe.
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut lines = Vec::new();
        while let Ok(line) = receiver.recv_timeout(DRAINING) {
            lines.push(line);
        }
        Ok((status, lines))
    };
    hear().map_err(|cause| format!("cargo did not run to its end: {cause}"))
}

fn pass_on(reader: PipeReader, sender: &mpsc::Sender<String>) {
    for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        println!("{line}");
        // Whoever has stopped listening has heard enough.
        if sender.send(line).is_err() {
            return;
        }
    }
}

/// What failed, out of what `cargo test --no-fail-fast` has said.
fn failed(lines: &[String]) -> Vec<Failed> {
    let mut found = Vec::new();
    let mut tests = Vec::new();
    // What they have said stands under the same heading, but behind an empty line.
    let mut in_list = false;
    for line in lines {
        in_list = *line == "failures:" || (in_list && line.starts_with("    "));
        if line.trim_start().starts_with("Running ") || line.trim_start().starts_with("Doc-tests ") {
            tests.clear();
        } else if in_list && *line != "failures:" {
            tests.push(line.trim().to_owned());
        } else if let Some(rerun) = line.strip_prefix("error: test failed, to rerun pass `") {
            let words = rerun.trim_end_matches('`').split(' ').map(str::to_owned);
            // Behind `-p PACKAGE`.
            let target = words.skip(2).collect::<Vec<_>>();
            // Of an example in a document there is no more to be had than its name.
            let is_program = target.first().is_some_and(|kind| kind != "--doc");
            let tests = if is_program { std::mem::take(&mut tests) } else { Vec::new() };
            found.push(Failed { target, tests });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
     Running tests/http.rs (target/debug/deps/http-7d1)
test a_flood ... FAILED
test a_leader ... ok

failures:

---- a_flood stdout ----
called `Option::unwrap()` on a `None` value
stack backtrace:
             at /rustc/library/std/src/panicking.rs:689:5

failures:
    a_flood

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 7.54s
error: test failed, to rerun pass `-p vvm-host --test http`
     Running unittests src/lib.rs (target/debug/deps/vvm_clock-9)
test it ... ok
     Running unittests src/lib.rs (target/debug/deps/vvm_deadman-9)
error: test failed, to rerun pass `-p vvm-deadman --lib`

Caused by:
  process didn't exit successfully (signal: 9, SIGKILL: kill)
error: 2 targets failed:
    `-p vvm-host --test http`
    `-p vvm-deadman --lib`
";

    #[test]
    fn what_failed_is_found_with_its_program() {
        let lines = SAID.lines().map(str::to_owned).collect::<Vec<_>>();
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let expected = [
            Failed { target: texts(&["--test", "http"]), tests: texts(&["a_flood"]) },
            Failed { target: texts(&["--lib"]), tests: Vec::new() },
        ];
        assert_eq!(failed(&lines), expected);
        let arguments = texts(&["test", "--workspace", "--no-fail-fast"]);
        assert_eq!(
            selected(&arguments, &expected[0].target),
            texts(&["test", "--workspace", "--test", "http"])
        );
    }

    #[test]
    fn an_example_in_a_document_is_not_run_again() {
        let said =
            ["failures:", "    src/lib.rs - it (line 3)", "error: test failed, to rerun pass `-p x --doc`"];
        let failed = failed(&said.map(str::to_owned));
        assert_eq!(failed[0].tests, Vec::<String>::new());
    }

    #[test]
    fn what_is_said_is_heard_with_the_status() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let (status, lines) = heard(&mut command).unwrap();
        assert_eq!((status.code(), lines), (Some(3), vec!["one".to_owned(), "two".to_owned()]));
    }
}
