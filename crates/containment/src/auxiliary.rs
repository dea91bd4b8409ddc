//! [`Helper`]: lines for a shell that run beside the command, in the same containment.

use crate::{launch, shim};
use std::{
    env, io,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    process::{Command, Stdio},
};

/// A helper of the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Helper {
    /// Runs before the command is stopped.
    PreStop,
    /// Checks whether the command works.
    Check,
}

/// The lines, for `sh -c`.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct HelperLines {
    /// The line of [`Helper::PreStop`].
    pub pre_stop: Option<String>,
    /// The line of [`Helper::Check`].
    pub check: Option<String>,
}

/// Why a helper did not end by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HelperError {
    /// It was killed.
    #[error("took longer than it may")]
    TooLong,
    /// The system refused the process.
    #[error("could not be started: {0}")]
    System(io::ErrorKind),
}

/// The variables by which a keeper gets the lines, and a shell its own: every user can read arguments of
/// processes, but not their environment.
const PRE_STOP: &str = "VVM_KEEPER_PRE_STOP";
const CHECK: &str = "VVM_KEEPER_CHECK";
const LINE: &str = "VVM_KEEPER_LINE";

impl HelperLines {
    /// Returns the line of `helper`.
    pub(crate) fn of(&self, helper: Helper) -> Option<&str> {
        match helper {
            Helper::PreStop => self.pre_stop.as_deref(),
            Helper::Check => self.check.as_deref(),
        }
    }

    /// Returns the lines as variables of a keeper.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [(PRE_STOP, &self.pre_stop), (CHECK, &self.check)]
            .into_iter()
            .filter_map(|(name, line)| Some((name, line.as_deref()?)))
    }

    /// Returns the lines in the environment of this process, a keeper.
    pub(crate) fn of_environment() -> Self {
        Self { pre_stop: env::var(PRE_STOP).ok(), check: env::var(CHECK).ok() }
    }
}

/// Removes the keeper's variables from the environment of `command`.
pub(crate) fn without_lines(mut command: Command) -> Command {
    command.env_remove(PRE_STOP).env_remove(CHECK);
    command
}

/// Returns the shim that becomes a shell for `line`, in a process group of its own. Its standard output goes
/// to standard error, because standard output is the command's.
///
/// # Errors
/// If the process is out of descriptors.
pub(crate) fn command(line: &str, far: OwnedFd) -> io::Result<Command> {
    let script = format!("line=${LINE}; unset {LINE}; eval \"$line\"");
    let shell = ["sh".into(), "-c".into(), script.into()];
    let mut command = without_lines(launch::command(shim::STAGE, launch::behind_dashes(&shell), far));
    command.env(LINE, line);
    command.process_group(0).stdout(Stdio::from(rustix::stdio::stderr().try_clone_to_owned()?));
    Ok(command)
}
