//! `cargo xtask test-timed`: runs the tests of real time alone, which are in modules `timed`, or others, repeatedly.

use crate::{
    limit,
    needs::scratch_variable,
    workspace::{self, Workspace, cargo},
};
use clap::Args;
use std::{collections::BTreeMap, fmt, io, path::Path};
use tempfile::TempDir;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often to run all of them.
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// Other tests: those whose names contain this text. May be given more than once.
    #[arg(long, value_name = "TEXT", default_value = "timed::")]
    only: Vec<String>,
    /// Those of this test program alone. May be given more than once.
    #[arg(long, value_name = "NAME")]
    test: Vec<String>,
}

pub(crate) fn run(options: &Options) -> bool {
    workspace::holds("test-timed", repeat(options))
}

fn repeat(options: &Options) -> Result<bool, String> {
    let workspace = Workspace::read().map_err(|error| error.to_string())?;
    let system = |error: io::Error| error.to_string();
    let tests = || {
        let mut command = cargo();
        command.envs(scratch_variable()).current_dir(&workspace.root);
        command.args(["test", "--workspace", "--all-features", "--no-fail-fast", "--quiet"]);
        command.args(options.test.iter().flat_map(|name| ["--test", name.as_str()]));
        command.args(options.test.is_empty().then_some("--tests"));
        command.arg("--").args(&options.only);
        command
    };
    let listed = limit::stdout(tests().arg("--list"), limit::STEP).map_err(system)?;
    if listed.status.success() && !String::from_utf8_lossy(&listed.stdout).contains(": test\n") {
        return Err("no test has such a name".into());
    }
    let mut held = 0;
    for number in 1..=options.repeat {
        let mut inconclusive = Inconclusive::new().map_err(system)?;
        let status = tests().env(timed::records::FOLDER, inconclusive.folder()).status().map_err(system)?;
        inconclusive.collect().map_err(system)?;
        let holds = status.success() && !inconclusive.are_too_many();
        held += usize::from(holds);
        println!("{inconclusive}run {number}: {}", if holds { "held" } else { "FAILED" });
    }
    println!("test-timed: {held} of {} runs held", options.repeat);
    Ok(held == options.repeat)
}

/// How many tests of a run may have an inconclusive attempt. On two processors of a shared virtual machine that five builds kept
/// busy, one to three of 55 timed tests had one; a run with more than eight says little about bounds.
const MOST: usize = 8;

#[derive(Debug)]
pub(crate) struct Inconclusive {
    folder: TempDir,
    found: BTreeMap<String, Vec<String>>,
}

impl Inconclusive {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { folder: tempfile::tempdir()?, found: BTreeMap::new() })
    }

    /// Returns the folder for records. Tests find it in the variable `timed::records::FOLDER`.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn collect(&mut self) -> io::Result<()> {
        for (name, attempts) in timed::records::take(self.folder.path())? {
            self.found.entry(name).or_default().extend(attempts);
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn are_too_many(&self) -> bool {
        self.found.len() > MOST
    }
}

impl fmt::Display for Inconclusive {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.found.len();
        if count == 0 {
            return writeln!(out, "inconclusive attempts: none");
        }
        let verdict = if self.are_too_many() { format!(", over {MOST}: FAILED") } else { String::new() };
        writeln!(out, "inconclusive attempts, in {count} tests{verdict}:")?;
        for (name, attempts) in &self.found {
            for attempt in attempts {
                writeln!(out, "  {name}: {attempt}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn of(tests: usize) -> Inconclusive {
        let mut inconclusive = Inconclusive::new().unwrap();
        for test in 0..tests {
            fs::write(
                inconclusive.folder().join(test.to_string()),
                format!("test {test}\tattempt 1: late\n"),
            )
            .unwrap();
            inconclusive.collect().unwrap();
        }
        inconclusive
    }

    #[test]
    fn attempts_of_eight_tests_are_listed_and_of_nine_fail_the_run() {
        let (some, too_many) = (of(MOST), of(MOST + 1));
        assert!(!some.are_too_many() && too_many.are_too_many());
        assert!(some.to_string().contains("\n  test 0: attempt 1: late\n"), "{some}");
        assert!(too_many.to_string().starts_with("inconclusive attempts, in 9 tests, over 8: FAILED:\n"));
    }

    #[test]
    fn second_attempt_of_one_test_is_no_second_test() {
        let mut inconclusive = of(1);
        fs::write(inconclusive.folder().join("1"), "test 0\tattempt 2: late\n").unwrap();
        inconclusive.collect().unwrap();
        assert_eq!(inconclusive.found.len(), 1);
        assert_eq!(inconclusive.to_string().lines().count(), 3);
    }
}
