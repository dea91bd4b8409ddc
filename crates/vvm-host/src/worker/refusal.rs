//! Why a command could not be executed: the status that a shell would report, and what to do about it.

use crate::cli::exit;
use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    path::Path,
};

/// A command that could not be executed.
#[derive(Debug)]
pub(crate) struct Refusal {
    command: OsString,
    cause: io::Error,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// There is nothing of that name.
    NotFound,
    /// The file is there; what its first line, or its format, calls for is not.
    NoInterpreter,
    /// A folder.
    Folder,
    /// The permissions forbid it.
    Forbidden,
    /// The system says something else.
    Other,
}

impl Refusal {
    /// What `cause` means for `command`.
    pub(crate) fn of(command: OsString, cause: io::Error) -> Self {
        let kind = Kind::of(&command, &cause);
        Self { command, cause, kind }
    }

    /// As a shell reports it.
    pub(crate) fn status(&self) -> u8 {
        match self.kind {
            Kind::NotFound => exit::NOT_FOUND,
            Kind::NoInterpreter | Kind::Folder | Kind::Forbidden | Kind::Other => exit::NOT_EXECUTABLE,
        }
    }
}

impl Kind {
    fn of(command: &OsStr, cause: &io::Error) -> Self {
        // A name without a slash is looked up in PATH, and what was found there is not known here.
        let is_path = command.as_encoded_bytes().contains(&b'/');
        let path = Path::new(command);
        match cause.kind() {
            io::ErrorKind::NotFound if is_path && path.exists() => Self::NoInterpreter,
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::PermissionDenied if is_path && path.is_dir() => Self::Folder,
            io::ErrorKind::PermissionDenied => Self::Forbidden,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = match self.kind {
            Kind::NotFound => "give its path, or a name that is found in PATH",
            Kind::NoInterpreter => "it is there, but the interpreter that its first line names is not",
            Kind::Folder => "it is a folder",
            Kind::Forbidden => "make it executable (chmod +x), and let this user into its folder",
            Kind::Other => "is it a program for this machine?",
        };
        write!(out, "can't run {}: {}: {hint}", self.command.display(), self.cause)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    fn refusal(command: &str, errno: Errno) -> (u8, String) {
        let refusal = Refusal::of(command.into(), errno.into());
        (refusal.status(), refusal.to_string())
    }

    #[test]
    fn each_cause_has_a_status_and_a_way_out() {
        let table = [
            ("no-such", Errno::NOENT, 127, "found in PATH"),
            ("./no/such", Errno::NOENT, 127, "give its path"),
            ("/etc/passwd", Errno::NOENT, 126, "interpreter"),
            ("/etc/passwd", Errno::ACCESS, 126, "chmod +x"),
            ("/etc", Errno::ACCESS, 126, "is a folder"),
            ("./program", Errno::NOEXEC, 126, "for this machine"),
        ];
        for (command, errno, status, hint) in table {
            let (found, text) = refusal(command, errno);
            assert_eq!(found, status, "{text}");
            assert!(text.contains(hint), "{text}");
        }
    }
}
