//! [`Helper`]: lines for a shell that run beside the command, in the same containment.

use crate::{launch, shim};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt as _, process::CommandExt as _},
    },
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

const PRE_STOP: &str = "--pre-stop=";
const CHECK: &str = "--check=";

impl HelperLines {
    /// Returns the line of `helper`.
    pub(crate) fn of(&self, helper: Helper) -> Option<&str> {
        match helper {
            Helper::PreStop => self.pre_stop.as_deref(),
            Helper::Check => self.check.as_deref(),
        }
    }

    /// Returns the lines as arguments of a stage.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = OsString> + use<> {
        let argument =
            |option: &str, line: &Option<String>| line.as_ref().map(|line| format!("{option}{line}").into());
        argument(PRE_STOP, &self.pre_stop).into_iter().chain(argument(CHECK, &self.check))
    }

    /// Returns the lines and the command from the arguments of a stage. `None` for unknown arguments.
    pub(crate) fn read(arguments: &[OsString]) -> Option<(Self, &[OsString])> {
        let mut lines = Self::default();
        for (place, argument) in arguments.iter().enumerate() {
            if argument == OsStr::new(launch::DASHES) {
                return Some((lines, &arguments[place + 1..]));
            }
            let line_of = |option: &str| {
                let line = argument.as_bytes().strip_prefix(option.as_bytes())?;
                String::from_utf8(line.to_vec()).ok()
            };
            match (line_of(PRE_STOP), line_of(CHECK)) {
                (Some(line), _) => lines.pre_stop = Some(line),
                (None, Some(line)) => lines.check = Some(line),
                (None, None) => return None,
            }
        }
        // A trial has no command.
        Some((lines, &[]))
    }
}

/// Returns the shim for `sh -c LINE`, in a process group of its own. Its standard output goes to standard
/// error, because standard output is the command's.
///
/// # Errors
/// If the process is out of descriptors.
pub(crate) fn command(line: &str, far: OwnedFd) -> io::Result<Command> {
    let shell = ["sh".into(), "-c".into(), line.into()];
    let mut command = launch::command(shim::STAGE, launch::behind_dashes(&shell), far);
    command.process_group(0).stdout(Stdio::from(rustix::stdio::stderr().try_clone_to_owned()?));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_command_survive_the_arguments() {
        let command = ["--check=x".into(), "--".into(), "b".into()];
        let lines = HelperLines { pre_stop: Some("a --b\n'c'".into()), check: Some(String::new()) };
        for lines in [lines, HelperLines::default()] {
            let arguments = lines.arguments().chain(launch::behind_dashes(&command)).collect::<Vec<_>>();
            assert_eq!(HelperLines::read(&arguments), Some((lines, &command[..])));
        }
        assert_eq!(HelperLines::read(&[]), Some((HelperLines::default(), &[][..])));
        assert_eq!(HelperLines::read(&["other".into()]), None);
    }
}
