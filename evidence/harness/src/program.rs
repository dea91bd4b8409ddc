//! The program under test.

use crate::{Attempt, Late, Level, Trial};
use std::{env, process::Command, sync::OnceLock};

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
        let mut command = Command::new(self.path());
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
