//! `cargo xtask test`, and the step of `ci` with the rest of the tests: builds test programs, and runs each one with a
//! limit for the time between two cases. `cargo test` waits for ever for a test that hangs. Here such a program is
//! killed, and the cases that it did not end are named.

mod progress;

use crate::{
    left_out::{self, LeftOut},
    limit,
    needs::scratch_variable,
    side_by_side::{AT_ONCE, side_by_side},
    test_timed::Inconclusive,
    workspace::{Workspace, cargo, holds},
};
use progress::Progress;
use serde_json::Value;
use std::{
    cmp::Reverse,
    fmt,
    io::{IsTerminal as _, stderr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use timed::records;

/// Several times what the longest case takes while other programs use both cores.
const SILENCE: Duration = Duration::from_secs(5 * 60);

/// How many cases of a program run at once: most cases wait for a TTL, and take no processor. The cases of `vvm` take 95 s
/// of a processor, and 7.5 minutes two at a time.
const CASES_AT_ONCE: &str = "6";

/// Variables of the environment that would change what tests see or print.
const REMOVED: [&str; 3] = ["RUST_BACKTRACE", "RUST_LIB_BACKTRACE", "RUST_LOG"];

const UNIT_TESTS: &str = ", unit tests";

/// The storage beside the default ones whose client needs no server, and is built quickly.
const SLED: &str = "vvm-storage/sled";

/// Packages with the clients of all storages, whose build takes longer than `cargo xtask test` may.
const WITH_ALL_CLIENTS: [&str; 5] = ["bench", "decoders", "faults", "servers", "workers"];

/// Programs at the containment levels that some machines lack.
const OTHER_LEVELS: [&str; 2] = ["vvm-cli, cgroup", "vvm-cli, pidns"];

/// Programs in which each driver has cases of its own.
const BY_DRIVER: [&str; 4] =
    ["vvm-storage, unit tests", "vvm-storage, storage", "vvm-host, unit tests", "vvm-cli, unit tests"];

/// What [`Selection::Default`] leaves out on every machine.
const NOT_SELECTED: &str =
    "servers, features that are not default, the levels cgroup and pidns, recipes, documentation, evidence";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// What a person runs: default features and sled, at the default containment level.
    Default,
    /// What the default leaves out, with all features. With the default, these are all tests that need no server.
    Rest,
}

impl Selection {
    fn arguments(self, workspace: &Workspace) -> Vec<String> {
        if self == Self::Rest {
            return vec!["--workspace".into(), "--all-features".into()];
        }
        let packages = workspace.packages.iter().map(|package| package.name.as_str());
        let built = packages.filter(|name| !WITH_ALL_CLIENTS.contains(name));
        let mut arguments: Vec<String> = built.flat_map(|name| ["--package", name]).map(Into::into).collect();
        arguments.extend(["--features".into(), SLED.into()]);
        arguments
    }

    fn has(self, program: &Program) -> bool {
        let is_at_other_level = OTHER_LEVELS.contains(&&*program.name);
        match self {
            Self::Default => !is_at_other_level,
            Self::Rest => {
                let package = program.name.split(',').next().unwrap_or_default();
                is_at_other_level
                    || WITH_ALL_CLIENTS.contains(&package)
                    || BY_DRIVER.contains(&&*program.name)
            }
        }
    }
}

#[derive(Debug)]
struct Program {
    path: PathBuf,
    /// The folder of its package, where it runs.
    folder: PathBuf,
    name: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

pub(crate) fn main() -> bool {
    let run = || {
        let workspace = Workspace::read().map_err(|error| error.to_string())?;
        limit::heed_interrupts().map_err(|error| format!("no handler for signals: {error}"))?;
        let no_folder = |error| format!("no folder for inconclusive attempts: {error}");
        let mut inconclusive = Inconclusive::new().map_err(no_folder)?;
        let mut left_out = LeftOut::default();
        left_out.add(NOT_SELECTED, "`cargo xtask ci` runs it");
        let ran = run(&workspace, Selection::Default, inconclusive.folder(), &mut left_out);
        inconclusive.collect().map_err(no_folder)?;
        if !inconclusive.is_empty() {
            eprint!("{inconclusive}");
        }
        eprint!("{left_out}");
        let counts = ran?;
        println!("{counts}");
        Ok::<_, String>(counts.failed == 0)
    };
    holds("test", run())
}

/// Runs the tests of a selection; inconclusive attempts are left in `records`. Prints the failures last, in full. Fails
/// if they do not build, a program of them ended without a case that failed, or none was run.
pub(crate) fn run(
    workspace: &Workspace,
    selection: Selection,
    records: &Path,
    left_out: &mut LeftOut,
) -> Result<Counts, String> {
    let programs = build(workspace, selection)?;
    let progress = Progress::start(programs.iter().map(Program::cases).sum());
    let ended = side_by_side(&programs, AT_ONCE, |program| {
        (!limit::is_interrupted()).then(|| (&program.name, program.run(records, &progress)))
    });
    progress.end();
    let (mut total, mut failed) = (Counts::default(), Vec::new());
    for (program, (cases, verdict)) in ended.into_iter().flatten() {
        total.add(cases.counts);
        for (case, why) in &cases.left_out {
            left_out.add(format!("{program}: {case}"), why);
        }
        if let Err(cause) = verdict {
            eprintln!("\n{}FAILED  {program}: {cause}", cases.output);
            failed.push(program.as_str());
        }
    }
    if limit::is_interrupted() {
        return Err("interrupted".into());
    }
    match failed.is_empty() {
        true if total.passed == 0 => Err("no test was run".into()),
        true => Ok(total),
        false => Err(format!("{total}; failed: {}", failed.join(", "))),
    }
}

fn build(workspace: &Workspace, selection: Selection) -> Result<Vec<Program>, String> {
    let mut command = cargo();
    command.args(["test", "--locked", "--no-run", "--message-format=json-render-diagnostics"]);
    command.args(selection.arguments(workspace)).current_dir(&workspace.root);
    if !stderr().is_terminal() {
        eprintln!("building the tests");
        command.arg("--quiet");
    }
    let built = limit::stdout(&mut command, limit::STEP).map_err(|error| format!("cargo: {error}"))?;
    if !built.status.success() {
        return Err("the tests do not build".into());
    }
    let text = String::from_utf8_lossy(&built.stdout);
    let mut programs = Vec::new();
    for line in text.lines() {
        let message = serde_json::from_str(line).map_err(|error| format!("cargo's messages: {error}"))?;
        programs.extend(Program::of(&message).filter(|program| selection.has(program)));
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

    /// Returns how many cases it has. None if it can't say so: a run of it says more.
    fn cases(&self) -> usize {
        let mut command = Command::new(&self.path);
        command.args(["--list", "--format", "terse"]);
        let listed = limit::output(&mut command, SILENCE).map(|listed| listed.stdout).unwrap_or_default();
        String::from_utf8_lossy(&listed).lines().filter(|line| line.ends_with(": test")).count()
    }

    /// Returns what it printed, without the lines of cases that ended, and why it failed.
    fn run(&self, records: &Path, progress: &Progress) -> (Cases, Result<(), String>) {
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
        let ended = limit::watch(&mut command, SILENCE, |line| {
            let failed = cases.counts.failed;
            let has_ended = cases.see(line);
            if has_ended {
                progress.count(cases.counts.failed > failed);
            }
            has_ended
        });
        let verdict = match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(status.to_string()),
            Err(cause) if cases.slow.is_empty() => Err(cause.to_string()),
            Err(cause) => Err(format!("{cause}; it did not end {}", cases.slow.join(", "))),
        };
        (cases, verdict)
    }
}

#[derive(Debug, Default)]
struct Cases {
    counts: Counts,
    /// The cases that the test runner called slow, after a minute, and that have not ended since.
    slow: Vec<String>,
    /// The cases that passed without a part, and why they left it out.
    left_out: Vec<(String, String)>,
    has_cases: bool,
    /// Whether the output of cases that passed comes now.
    in_successes: bool,
    /// The case whose output comes now, if it passed.
    passed: Option<String>,
    output: String,
}

impl Cases {
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
        self.has_cases |= line.starts_with("running ");
        if !self.in_successes {
            self.output.push_str(line);
            self.output.push('\n');
        }
        if !self.in_successes && self.has_cases {
            return;
        }
        let header = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(name) = header {
            self.passed = Some(name.to_owned());
        } else if let Some(why) = left_out::reason(line) {
            self.left_out.push((self.passed.clone().unwrap_or_default(), why.to_owned()));
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
            "running 3 tests",
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
        assert_eq!(cases.left_out, [("a::b".to_owned(), "no namespaces".to_owned())]);
        assert!(
            cases.output.starts_with("running 3 tests\nfailures:\n") && !cases.output.contains("noise"),
            "{}",
            cases.output
        );
    }

    #[test]
    fn what_a_program_without_cases_left_out_is_named() {
        let mut cases = Cases::default();
        for line in ["a guardian is killed", "not tested: no namespaces"] {
            cases.see(line);
        }
        assert_eq!(cases.left_out, [(String::new(), "no namespaces".to_owned())]);
    }

    /// A misspelt name would leave its tests out without a word.
    #[test]
    fn every_program_is_in_a_selection_and_every_name_is_of_one() {
        let workspace = Workspace::read().unwrap();
        let mut names = Vec::new();
        for package in &workspace.packages {
            let folder = package.folder().file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            assert!(package.name.ends_with(&*folder), "{} is told apart by its folder", package.name);
            names.push(format!("{folder}{UNIT_TESTS}"));
            let programs = package.targets.iter().filter(|target| target.kind == ["test"]);
            names.extend(programs.map(|target| format!("{folder}, {}", target.name)));
        }
        let default = Selection::Default.arguments(&workspace).join(" ");
        for name in &names {
            let program = Program { path: PathBuf::new(), folder: PathBuf::new(), name: name.clone() };
            let package = name.split(',').next().unwrap();
            let is_default = Selection::Default.has(&program)
                && (default.contains(&format!("-package {package} "))
                    || default.contains(&format!("-package vvm-{package} ")));
            assert!(is_default || Selection::Rest.has(&program), "{name} is in no selection");
        }
        let packages = WITH_ALL_CLIENTS.map(|package| format!("{package}{UNIT_TESTS}"));
        for name in packages.iter().map(String::as_str).chain(OTHER_LEVELS).chain(BY_DRIVER) {
            assert!(names.iter().any(|known| known == name), "there is no {name}");
        }
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
