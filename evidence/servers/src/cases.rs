//! Runs the cases of one driver, and counts them. Each case is a test of `vvm-storage` or `vvm-cli`.

use servers::owned;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::{
    env, fmt,
    io::{self, BufRead, BufReader, IsTerminal as _},
    ops::Add,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The tests of a driver.
#[derive(Debug)]
pub(crate) struct Suite<'a> {
    /// The test binaries.
    pub(crate) tests: &'a [&'a str],
    /// The modules in them, and single cases with their module: `pause`, `outages::a_case`; all if empty.
    pub(crate) only: &'a [&'a str],
    /// How many cases run at once, so that the server's machine stays punctual.
    pub(crate) threads: u8,
    /// Variables that tell the tests where the server is.
    pub(crate) environment: &'a [(&'a str, &'a str)],
}

/// How many cases passed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Cases {
    passed: usize,
    failed: usize,
    /// Whether cargo ended with status 0.
    succeeded: bool,
}

impl Suite<'_> {
    /// Runs them, and prints their output. A log has no line of a case that passed: thousands would bury the
    /// one that failed.
    ///
    /// # Errors
    /// The tests could not be run.
    pub(crate) fn run(&self) -> Result<Cases, String> {
        let system = |error: io::Error| format!("cargo could not be run: {error}");
        // An interrupt ends cargo. This process continues, to end the server.
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(system)?;
        }
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = owned::command(cargo).map_err(system)?;
        command
            // As for the workspace's own tests, whose build is reused.
            .args(["test", "--locked", "--no-fail-fast", "--workspace", "--all-features"])
            .args(self.tests.iter().flat_map(|test| ["--test", test]))
            .args(["--", &format!("--test-threads={}", self.threads)])
            .args(self.only.iter().map(|name| filter(name)))
            .envs(self.environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(system)?;
        let (mut cases, at_terminal) = (Cases::default(), io::stdout().is_terminal());
        if let Some(output) = child.stdout.take() {
            for line in BufReader::new(output).lines() {
                let line = line.map_err(system)?;
                if !cases.note(&line) || at_terminal {
                    println!("{line}");
                }
                if interrupted.load(Ordering::Relaxed) {
                    // It may have ended already.
                    let _gone = child.kill();
                }
            }
        }
        cases.succeeded = child.wait().map_err(system)?.success();
        if interrupted.load(Ordering::Relaxed) {
            return Err("interrupted".into());
        }
        Ok(cases)
    }
}

/// Returns the test runner's filter: a module with colons, so that its name selects no other module.
fn filter(name: &str) -> String {
    if name.contains("::") { name.into() } else { format!("{name}::") }
}

impl Cases {
    /// Returns how many ran.
    pub(crate) fn count(self) -> usize {
        self.passed + self.failed
    }

    /// Counts the case of a line such as `test name ... ok`. Returns whether it is of a case that passed.
    fn note(&mut self, line: &str) -> bool {
        let passed_before = self.passed;
        match line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) {
            Some((_, "ok")) => self.passed += 1,
            Some((_, "FAILED")) => self.failed += 1,
            _ => {}
        }
        self.passed > passed_before
    }

    /// Whether all passed. A run without a case has not.
    pub(crate) fn all_passed(&self) -> bool {
        self.succeeded && self.passed > 0 && self.failed == 0
    }
}

/// Adds up two runs.
impl Add for Cases {
    type Output = Self;

    fn add(self, next: Self) -> Self {
        Self {
            passed: self.passed + next.passed,
            failed: self.failed + next.failed,
            // A run without a case was left out by mistake.
            succeeded: self.succeeded && self.passed > 0 && next.succeeded && next.passed > 0,
        }
    }
}

impl fmt::Display for Cases {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, succeeded } = self;
        write!(out, "{passed:3} cases passed, {failed} failed")?;
        if !succeeded && *failed == 0 {
            out.write_str(", and the run did not end")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_run_with_cases_has_passed() {
        let mut cases = Cases { succeeded: true, ..Cases::default() };
        assert!(!cases.all_passed(), "no case");
        for line in ["running 2 tests", "test result: ok. 1 passed"] {
            assert!(!cases.note(line), "{line}");
        }
        for line in ["test a::b ... ok", "test c ... ok"] {
            assert!(cases.note(line), "{line}");
        }
        assert_eq!((cases.passed, cases.failed), (2, 0));
        assert!(cases.all_passed());
        assert!(!Cases { succeeded: false, ..cases }.all_passed());
        assert!((cases + cases).all_passed());
        assert!(
            !(cases + Cases { succeeded: true, ..Cases::default() }).all_passed(),
            "no case in the second run"
        );
        assert!(!cases.note("test d ... FAILED"), "a log shows it");
        assert!(!cases.all_passed());
        assert!(!(cases + cases).all_passed());
    }
}
