//! The step `tests`: builds every test program, and runs each one with a limit for the time between two cases.
//!
//! `cargo test` waits for ever for a test that hangs. Here such a program is killed, and the cases that it did
//! not end are named.

use super::{limit, needs::scratch_variable};
use crate::workspace::cargo;
use serde_json::Value;
use std::{
    cmp::Reverse,
    fmt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};
use timed::records;
use vvm_clock::SystemClock;

/// Several times what the longest case takes while other programs use both cores.
const SILENCE: Duration = Duration::from_secs(5 * 60);

/// How many programs run side by side, and how many cases of each: most cases wait for a TTL, and take no
/// processor.
const AT_ONCE: usize = 2;
const CASES_AT_ONCE: &str = "3";

/// Variables of the environment that would change what tests see or print.
const REMOVED: [&str; 3] = ["RUST_BACKTRACE", "RUST_LIB_BACKTRACE", "RUST_LOG"];

/// How a case begins its line about what the machine lacks.
const LEFT_OUT: [&str; 2] = ["left out: ", "not tested: "];

const UNIT_TESTS: &str = ", unit tests";

/// A test program that cargo has built.
#[derive(Debug)]
struct Program {
    path: PathBuf,
    /// The folder of its package, where it runs.
    folder: PathBuf,
    name: String,
}

/// How many cases passed, failed and were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// Runs every test of the workspace, in `root`; inconclusive attempts are left in `records`.
///
/// # Errors
/// Names the programs of which a case failed or hung.
pub(super) fn run(root: &Path, records: &Path) -> Result<(), String> {
    let queue = Mutex::new(build(root)?.into_iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let lane = || {
        let (mut total, mut failed, mut left_out) = (Counts::default(), Vec::new(), Vec::new());
        while let Some(program) = next().filter(|_| !limit::is_interrupted()) {
            let start = SystemClock::read();
            let (cases, verdict) = program.run(records);
            let took = SystemClock::read().since(start).as_secs_f64();
            total.add(cases.counts);
            left_out.extend(cases.left_out.iter().map(|case| format!("{}: {case}", program.name)));
            match verdict {
                Ok(()) => println!("{took:7.1} s  {:4} passed  {}", cases.counts.passed, program.name),
                Err(cause) => {
                    println!("{}{took:7.1} s  FAILED  {}: {cause}\n", cases.output, program.name);
                    failed.push(program.name);
                }
            }
        }
        (total, failed, left_out)
    };
    let ended = thread::scope(|scope| {
        let lanes: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().map(thread::ScopedJoinHandle::join).collect::<Result<Vec<_>, _>>()
    });
    let (mut total, mut failed, mut left_out) = (Counts::default(), Vec::new(), Vec::new());
    for (counts, names, lacking) in ended.map_err(|_| "panicked")? {
        total.add(counts);
        failed.extend(names);
        left_out.extend(lacking);
    }
    println!("\ntests: {total}");
    if !left_out.is_empty() {
        println!("cases that this machine can't run as they are meant: {}", left_out.len());
        left_out.iter().for_each(|case| println!("  {case}"));
    }
    if limit::is_interrupted() {
        return Err("interrupted".into());
    }
    if failed.is_empty() && total.passed > 0 { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

fn build(root: &Path) -> Result<Vec<Program>, String> {
    let mut command = cargo();
    command.args(["test", "--quiet", "--locked", "--workspace", "--all-features", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics").current_dir(root);
    let built = limit::output(&mut command, limit::STEP).map_err(|error| format!("cargo: {error}"))?;
    if !built.status.success() {
        return Err(format!("the tests do not build:\n{}", String::from_utf8_lossy(&built.stderr)));
    }
    let text = String::from_utf8_lossy(&built.stdout);
    let mut programs = Vec::new();
    for line in text.lines() {
        let message = serde_json::from_str(line).map_err(|error| format!("cargo's messages: {error}"))?;
        programs.extend(Program::of(&message));
    }
    // The longest first, so that no lane ends long after the other: those of whole programs, of `vvm` and storages.
    programs
        .sort_by_key(|program: &Program| (program.name.ends_with(UNIT_TESTS), Reverse(program.name.clone())));
    Ok(programs)
}

impl Program {
    /// `None` if the message is of no test program.
    fn of(message: &Value) -> Option<Self> {
        if message["profile"]["test"] != true {
            return None;
        }
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
        let package = folder.file_name()?.to_string_lossy().into_owned();
        let target = &message["target"];
        let name = match target["kind"].as_array()?.contains(&"test".into()) {
            true => format!("{package}, {}", target["name"].as_str()?),
            false => format!("{package}{UNIT_TESTS}"),
        };
        Some(Self { path: message["executable"].as_str()?.into(), folder, name })
    }

    /// Returns what it printed, without the lines of cases that ended, and why it failed.
    fn run(&self, records: &Path) -> (Cases, Result<(), String>) {
        let mut command = Command::new(&self.path);
        // Shows what cases that passed have left out.
        command.arg("--show-output").current_dir(&self.folder).env(records::FOLDER, records);
        command.env("RUST_TEST_THREADS", CASES_AT_ONCE);
        command.envs(scratch_variable());
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        for variable in REMOVED {
            command.env_remove(variable);
        }
        let mut cases = Cases::default();
        let ended = limit::watch(&mut command, SILENCE, |line| cases.see(line));
        let verdict = match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(status.to_string()),
            Err(cause) if cases.slow.is_empty() => Err(cause.to_string()),
            Err(cause) => Err(format!("{cause}; it did not end {}", cases.slow.join(", "))),
        };
        (cases, verdict)
    }
}

/// What a test program has printed.
#[derive(Debug, Default)]
struct Cases {
    counts: Counts,
    /// The cases that the test runner called slow, after a minute, and that have not ended since.
    slow: Vec<String>,
    /// The lines in which cases say what they left out because the machine lacks it, each with the case's name.
    left_out: Vec<String>,
    /// Whether the output of cases that passed comes now.
    in_successes: bool,
    /// The case whose output comes now, if it passed.
    passed: Option<String>,
    /// What is printed if the program fails.
    output: String,
}

impl Cases {
    /// Takes a line of output. Returns whether a case ended.
    fn see(&mut self, line: &str) -> bool {
        let case = line.strip_prefix("test ");
        if let Some(slow) = case.and_then(|rest| rest.split_once(" has been running for over ")) {
            self.slow.push(slow.0.to_owned());
            return false;
        }
        let end = case.and_then(|rest| rest.rsplit_once(" ... "));
        let Some((name, end)) = end else {
            self.see_output(line);
            return false;
        };
        self.slow.retain(|slow| slow != name);
        match end {
            "ok" => self.counts.passed += 1,
            "FAILED" => self.counts.failed += 1,
            _ => self.counts.skipped += 1,
        }
        true
    }

    /// Takes a line that is not the end of a case. The output of those that passed comes first, and is not kept.
    fn see_output(&mut self, line: &str) {
        if ["successes:", "failures:"].contains(&line) || line.starts_with("test result: ") {
            self.in_successes = line == "successes:";
        }
        if !self.in_successes {
            self.output.push_str(line);
            self.output.push('\n');
            return;
        }
        let header = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(name) = header {
            self.passed = Some(name.to_owned());
        } else if LEFT_OUT.iter().any(|words| line.starts_with(words)) {
            let name = self.passed.as_deref().unwrap_or_default();
            self.left_out.push(format!("{name}: {line}"));
        }
    }
}

impl Counts {
    fn add(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.skipped += more.skipped;
    }
}

/// As in the last line of other test runners.
impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_that_never_ends_is_named() {
        let mut cases = Cases::default();
        assert!(cases.see("test quick ... ok"));
        for line in [
            "test a::hangs has been running for over 60 seconds",
            "test b has been running for over 60 seconds",
        ] {
            assert!(!cases.see(line), "no case ended");
        }
        assert!(cases.see("test b ... FAILED"));
        assert!(cases.see("test c ... ignored, needs a server"));
        assert!(!cases.see("---- b stdout ----"));
        assert_eq!(cases.slow, ["a::hangs"]);
        assert_eq!(cases.counts, Counts { passed: 1, failed: 1, skipped: 1 });
        assert_eq!(cases.output, "---- b stdout ----\n");
    }

    #[test]
    fn what_a_case_that_passed_left_out_is_named_and_the_rest_of_its_output_is_not_kept() {
        let mut cases = Cases::default();
        for line in [
            "successes:",
            "---- a::b stdout ----",
            "noise",
            "not tested: no namespaces",
            "successes:",
            "    a::b",
            "failures:",
            "---- c stdout ----",
            "not tested: said by a case that failed",
        ] {
            cases.see(line);
        }
        assert_eq!(cases.left_out, ["a::b: not tested: no namespaces"]);
        assert!(
            cases.output.starts_with("failures:\n") && !cases.output.contains("noise"),
            "{}",
            cases.output
        );
    }

    #[test]
    fn only_test_programs_are_run() {
        let of = |test: bool, kind: &str| {
            let message = format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/clock/Cargo.toml","target":{{"name":"t",
                "kind":["{kind}"]}},"profile":{{"test":{test}}},"executable":"/w/target/t"}}"#
            );
            Program::of(&serde_json::from_str(&message).unwrap()).map(|program| program.name)
        };
        assert_eq!(of(true, "test").as_deref(), Some("clock, t"));
        assert_eq!(of(true, "lib").as_deref(), Some("clock, unit tests"));
        assert_eq!(of(false, "bin"), None);
    }
}
