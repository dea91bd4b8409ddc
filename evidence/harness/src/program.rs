//! The program under test.

use super::{
    eventually,
    level::{own_group_of_version_1, remove_group},
};
use crate::{Attempt, Late, Level, Trial, surroundings};
use rustix::process::Pid;
use std::{env, fs, io, path::PathBuf, process::Command, sync::OnceLock};

/// The variable with another program to test, such as an older release.
const OVERRIDE: &str = "VVM_TEST_BINARY";

/// The program under test, and the level of containment that a test binary runs it at.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    built: &'static str,
    level: Level,
}

impl Program {
    /// The program that cargo built for the test binary, `env!("CARGO_BIN_EXE_vvm")`.
    pub const fn new(built: &'static str, level: Level) -> Self {
        Self { built, level }
    }

    /// Returns its path.
    pub fn path(self) -> &'static str {
        static OTHER: OnceLock<Option<String>> = OnceLock::new();
        OTHER.get_or_init(|| env::var(OVERRIDE).ok()).as_deref().unwrap_or(self.built)
    }

    /// Returns a command that runs it with these arguments.
    pub fn command(self, arguments: &[&str]) -> Command {
        let mut command = surroundings::command(self.path());
        command.args(arguments);
        command
    }

    /// Returns the level of containment, or guardian on a machine without that level. Separate tests show
    /// that a missing level is refused.
    pub fn level(self) -> Level {
        if self.level.is_available() { self.level } else { Level::Guardian }
    }

    /// Returns a trial of it, with an empty storage.
    pub fn trial(self) -> Trial {
        Trial::of(self)
    }

    /// Makes attempts at a test of real time, each with a trial of its own, until one is decided
    /// ([`timed::timed`]).
    pub fn timed(self, name: &str, mut attempt: impl FnMut(&Attempt, &Trial) -> Result<(), Late>) {
        let name = format!("{name}, at level {}", self.level().name());
        timed::timed(&name, |this| {
            let trial = self.trial();
            trial.watch_server(this);
            attempt(this, &trial)
        });
    }
}

/// A command of the program.
#[derive(Debug)]
pub struct Described {
    /// Its name.
    pub command: String,
    /// Its options, except help.
    pub options: Vec<String>,
}

impl Described {
    /// Whether its options are settings: it works on a storage, and takes a settings file.
    pub fn has_settings(&self) -> bool {
        self.options.iter().any(|option| option == "storage")
    }
}

fn help(program: Program, arguments: &[&str]) -> String {
    let output = program.command(arguments).arg("-h").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Every command that the help lists, but for the help itself.
fn commands(program: Program) -> Vec<Described> {
    let help_of_all = help(program, &[]);
    let listed = help_of_all.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.map_while(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands = names
        .filter(|name| *name != "help")
        .map(|name| Described { command: name.to_owned(), options: options(&help(program, &[name])) });
    commands.collect()
}

impl Program {
    /// Every command that its help lists, but for the help itself.
    pub fn commands(self) -> Vec<Described> {
        commands(self)
    }
}

fn options(help: &str) -> Vec<String> {
    let listed =
        help.lines().skip_while(|line| *line != "Options:").skip(1).take_while(|line| !line.is_empty());
    // As in "  -h, --help  Print help" and "      --ttl <DURATION>  How long".
    let shown = listed.filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("--").or_else(|| line.get(4..)?.strip_prefix("--"))
    });
    let names = shown.map(|shown| shown.split([' ', '=', '[']).next().unwrap().to_owned());
    names.filter(|name| !["help", "version"].contains(&name.as_str())).collect()
}

/// A control group whose processes stand still. A signal, also SIGKILL, takes effect after its end.
#[derive(Debug)]
pub struct Freezer(PathBuf);

impl Freezer {
    /// Makes a group of this name, inside the one of this process.
    ///
    /// # Errors
    /// Says why this machine does not allow it.
    pub fn of(name: &str) -> io::Result<Self> {
        let parent = own_group_of_version_1("freezer");
        let parent = parent.ok_or_else(|| io::Error::other("no control groups of version 1"))?;
        let folder = parent.join(format!("vvm-freezer-{name}"));
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }

    /// Has a process stand still.
    pub fn freeze(&self, process: Pid) {
        fs::write(self.0.join("cgroup.procs"), process.to_string()).unwrap();
        self.turn("FROZEN");
    }

    fn turn(&self, state: &str) {
        let file = self.0.join("freezer.state");
        fs::write(&file, state).unwrap();
        eventually(state, || fs::read_to_string(&file).unwrap().trim() == state);
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.turn("THAWED");
        remove_group(&self.0);
    }
}
