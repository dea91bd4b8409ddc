//! `cargo xtask test-timed`: runs only the tests of real time, repeatedly, if asked with freezes. These are
//! the tests in modules named `timed`.

use crate::{
    ci::needs::scratch_variable,
    evidence::{self, Profile},
    workspace::{Workspace, cargo},
};
use clap::Args;
use std::{
    cell::Cell,
    collections::BTreeMap,
    ffi::OsString,
    fmt, fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tempfile::TempDir;
use vvm_clock::{Instant, SystemClock};

/// The options.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often to run all of them.
    #[arg(long, default_value_t = 1, conflicts_with = "planted")]
    repeat: usize,
    /// Freeze all their processes together for 0.5 s, every 5 to 15 s. Needs control groups, version 2.
    #[arg(long, conflicts_with = "planted")]
    freeze: bool,
    /// Miss deadlines on purpose instead, on this machine as it is and with two busy loops per processor.
    #[arg(long)]
    planted: bool,
    /// How often each deadline is missed.
    #[arg(long, requires = "planted", default_value_t = 20)]
    attempts: usize,
}

/// Runs them. Returns whether none failed and few enough were inconclusive.
pub(crate) fn run(options: &Options) -> bool {
    if options.planted {
        let attempts = ["--attempts".into(), OsString::from(options.attempts.to_string())];
        return evidence::run(Profile::Dev, "timed", "", &attempts);
    }
    match repeat(options) {
        Ok(held) => held,
        Err(error) => {
            eprintln!("test-timed: {error}");
            false
        }
    }
}

fn repeat(options: &Options) -> Result<bool, String> {
    let workspace = Workspace::read().map_err(|error| error.to_string())?;
    let system = |error: io::Error| error.to_string();
    let freezer = options
        .freeze
        .then(Freezer::new)
        .transpose()
        .map_err(|error| format!("--freeze: no control group (version 2) can be made here: {error}"))?;
    let mut held = 0;
    for number in 1..=options.repeat {
        let mut inconclusive = Inconclusive::new().map_err(system)?;
        let tests = ["test", "--workspace", "--all-features", "--tests", "--no-fail-fast", "--quiet"];
        let mut command = freezer.as_ref().map_or_else(cargo, |freezer| freezer.enter(&cargo()));
        command.envs(scratch_variable());
        command.args(tests).args(["--", "timed::"]).env(timed::records::FOLDER, inconclusive.folder());
        let status = status(command.current_dir(&workspace.root), freezer.as_ref()).map_err(system)?;
        inconclusive.collect().map_err(system)?;
        // Freezes make many attempts inconclusive, as intended.
        let holds = status && (options.freeze || !inconclusive.are_too_many());
        held += usize::from(holds);
        println!("{inconclusive}run {number}: {}", if holds { "held" } else { "FAILED" });
    }
    println!("test-timed: {held} of {} runs held", options.repeat);
    Ok(held == options.repeat)
}

fn status(command: &mut Command, freezer: Option<&Freezer>) -> io::Result<bool> {
    let mut child = command.spawn()?;
    let ended = loop {
        match freezer {
            None => break child.wait(),
            Some(freezer) => {
                if let Some(status) = child.try_wait()? {
                    break Ok(status);
                }
                freezer.freeze_now_and_then()?;
            }
        }
    };
    Ok(ended?.success())
}

/// The duration of a freeze.
const FROZEN: Duration = Duration::from_millis(500);

/// The time between two freezes, in milliseconds. Most attempts end in between.
const THAWED_MILLIS: std::ops::Range<u64> = 5_000..15_000;

/// The interval between two checks of the processes.
const PACE: Duration = Duration::from_millis(50);

/// The group. Dropping it removes it; it must be empty then.
#[derive(Debug)]
struct Freezer {
    group: PathBuf,
    next: Cell<Instant>,
}

impl Freezer {
    /// # Errors
    /// If there are no control groups, or this process may not create one.
    fn new() -> io::Result<Self> {
        let group = own_group()?.join(format!("vvm-test-timed-{}", std::process::id()));
        fs::create_dir(&group)?;
        Ok(Self { group, next: Cell::new(later()) })
    }

    /// Returns `command`, started in the group.
    fn enter(&self, command: &Command) -> Command {
        let mut entering = Command::new("sh");
        entering.args(["-c", "echo 0 > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&self.group);
        entering.arg(command.get_program()).args(command.get_args());
        entering.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        entering
    }

    /// Freezes the group if it is time, and waits a moment.
    ///
    /// # Errors
    /// If the group was removed.
    fn freeze_now_and_then(&self) -> io::Result<()> {
        if SystemClock::read() < self.next.get() {
            SystemClock::block_for(PACE);
            return Ok(());
        }
        self.set("1")?;
        SystemClock::block_for(FROZEN);
        self.set("0")?;
        self.next.set(later());
        Ok(())
    }

    fn set(&self, frozen: &str) -> io::Result<()> {
        fs::write(self.group.join("cgroup.freeze"), frozen)
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        // Tests in which guardian and host are killed leave empty groups of commands.
        for group in fs::read_dir(&self.group).into_iter().flatten().flatten() {
            let _is_file = fs::remove_dir(group.path());
        }
        // A group with a process remains. Its name shows its origin.
        let _busy = fs::remove_dir(&self.group);
    }
}

fn later() -> Instant {
    SystemClock::read().after(Duration::from_millis(fastrand::u64(THAWED_MILLIS)))
}

/// Returns the folder of the group of this process.
fn own_group() -> io::Result<PathBuf> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).ok_or_else(missing)?;
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let is_unified = |line: &&str| line.split(' ').nth(2) == Some("cgroup2");
    let mount =
        mounts.lines().find(is_unified).and_then(|line| line.split(' ').nth(1)).ok_or_else(missing)?;
    Ok(Path::new(mount).join(group))
}

/// How many tests of a run may have an inconclusive attempt. On two processors of a shared virtual machine that five builds kept
/// busy, one to three of 55 timed tests had one; a run with more than eight says little about bounds.
const MOST: usize = 8;

/// The records of inconclusive attempts that the tests of a run write.
#[derive(Debug)]
pub(crate) struct Inconclusive {
    folder: TempDir,
    found: BTreeMap<String, Vec<String>>,
}

impl Inconclusive {
    /// # Errors
    /// If no folder can be created for them.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { folder: tempfile::tempdir()?, found: BTreeMap::new() })
    }

    /// Returns the folder for records. Tests find it in the variable `timed::records::FOLDER`.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Reads the records that tests have written since the last call.
    ///
    /// # Errors
    /// If they can't be read.
    pub(crate) fn collect(&mut self) -> io::Result<()> {
        for (name, attempts) in timed::records::take(self.folder.path())? {
            self.found.entry(name).or_default().extend(attempts);
        }
        Ok(())
    }

    /// Whether too many tests are inconclusive.
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
