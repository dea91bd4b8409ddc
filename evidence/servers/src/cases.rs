//! Running the cases of one driver, and counting them. The cases are tests of `vvm-storage`, and end to end
//! those of `vvm-host`: one each, so that a failure names itself.

use servers::owned;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::{
    env, fmt,
    io::{self, BufRead, BufReader},
    ops::Add,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Which tests are a driver's.
#[derive(Debug)]
pub(crate) struct Suite<'a> {
    /// What is built.
    pub(crate) build: Build,
    /// The files of tests.
    pub(crate) tests: &'a [&'a str],
    /// The modules in them, if not all is this driver's.
    pub(crate) only: &'a [&'a str],
    /// How many cases at once: as much as the server's machine bears without being late.
    pub(crate) threads: u8,
    /// What tells the tests where the server is.
    pub(crate) environment: &'a [(&'a str, &'a str)],
}

/// What the tests are built of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Build {
    /// `vvm-storage`, with the driver's feature alone.
    Driver(&'static str),
    /// Everything with all features, as for the tests of the whole workspace: what these have built is not
    /// built again.
    Everything,
}

impl Build {
    fn arguments(self) -> Vec<&'static str> {
        match self {
            Self::Driver(feature) => {
                vec!["--package", "vvm-storage", "--no-default-features", "--features", feature]
            }
            Self::Everything => vec!["--workspace", "--all-features"],
        }
    }
}

/// What came of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Cases {
    passed: usize,
    failed: usize,
    /// Whether the run came to its end, and said that all is well.
    succeeded: bool,
}

impl Suite<'_> {
    /// Runs them, a few at a time; their output goes where ours goes.
    ///
    /// # Errors
    /// Why they could not be run.
    pub(crate) fn run(&self) -> Result<Cases, String> {
        let system = |error: io::Error| format!("cargo could not be run: {error}");
        // A person who interrupts ends cargo. We go on to the end, and take the server down.
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(system)?;
        }
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = owned::command(cargo).map_err(system)?;
        command
            .args(["test", "--locked", "--no-fail-fast"])
            .args(self.build.arguments())
            .args(self.tests.iter().flat_map(|test| ["--test", test]))
            .args(["--", "--show-output", &format!("--test-threads={}", self.threads)])
            // With colons, or the name of one module would select another one, too.
            .args(self.only.iter().map(|module| format!("{module}::")))
            .envs(self.environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(system)?;
        let mut cases = Cases::default();
        if let Some(output) = child.stdout.take() {
            for line in BufReader::new(output).lines() {
                let line = line.map_err(system)?;
                println!("{line}");
                cases.count(&line);
                if interrupted.load(Ordering::Relaxed) {
                    // Gone already is as good.
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

impl Cases {
    /// `test name ... ok`, as Rust's own tests report it.
    fn count(&mut self, line: &str) {
        match line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) {
            Some((_, "ok")) => self.passed += 1,
            Some((_, "FAILED")) => self.failed += 1,
            _ => {}
        }
    }

    /// No case at all is no success.
    pub(crate) fn all_passed(&self) -> bool {
        self.succeeded && self.passed > 0 && self.failed == 0
    }
}

/// Of one run after another.
impl Add for Cases {
    type Output = Self;

    fn add(self, next: Self) -> Self {
        Self {
            passed: self.passed + next.passed,
            failed: self.failed + next.failed,
            // A run without a case is one that was forgotten.
            succeeded: self.succeeded && self.passed > 0 && next.succeeded && next.passed > 0,
        }
    }
}

impl fmt::Display for Cases {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, succeeded } = self;
        write!(out, "{passed:3} cases passed, {failed} failed")?;
        if !succeeded && *failed == 0 {
            out.write_str(", and the run did not come to its end")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_run_with_cases_has_passed() {
        let mut cases = Cases { succeeded: true, ..Cases::default() };
        assert!(!cases.all_passed(), "no case");
        for line in ["running 2 tests", "test a::b ... ok", "test result: ok. 1 passed", "test c ... ok"] {
            cases.count(line);
        }
        assert_eq!((cases.passed, cases.failed), (2, 0));
        assert!(cases.all_passed());
        assert!(!Cases { succeeded: false, ..cases }.all_passed());
        assert!((cases + cases).all_passed());
        assert!(
            !(cases + Cases { succeeded: true, ..Cases::default() }).all_passed(),
            "no case in the second run"
        );
        cases.count("test d ... FAILED");
        assert!(!cases.all_passed());
        assert!(!(cases + cases).all_passed());
    }
}
