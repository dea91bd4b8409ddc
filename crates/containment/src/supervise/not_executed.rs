//! [`NotExecuted`]: why a command could not be executed, and what to do.

use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    path::Path,
};

/// A command that could not be executed.
#[derive(Debug)]
pub struct NotExecuted {
    command: OsString,
    cause: io::Error,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// No such file.
    NotFound,
    /// No such file, and the name has spaces, as a command line has.
    CommandLine,
    /// The file exists; the interpreter that its first line or its format needs does not.
    NoInterpreter,
    /// A folder.
    Folder,
    /// The permissions forbid it.
    Forbidden,
    /// Any other cause.
    Other,
}

impl NotExecuted {
    /// Interprets `cause` for `command`.
    pub(crate) fn of(command: OsString, cause: io::Error) -> Self {
        let kind = Kind::of(&command, &cause);
        Self { command, cause, kind }
    }

    /// Returns whether there is no such command. A shell reports 127 then, and 126 for any other cause.
    pub fn is_not_found(&self) -> bool {
        matches!(self.kind, Kind::NotFound | Kind::CommandLine)
    }
}

impl Kind {
    fn of(command: &OsStr, cause: &io::Error) -> Self {
        // A name without a slash was looked up in PATH: the file is not known here.
        let is_path = command.as_encoded_bytes().contains(&b'/');
        let path = Path::new(command);
        match cause.kind() {
            io::ErrorKind::NotFound if is_path && path.exists() => Self::NoInterpreter,
            io::ErrorKind::NotFound if command.as_encoded_bytes().contains(&b' ') => Self::CommandLine,
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::PermissionDenied if is_path && path.is_dir() => Self::Folder,
            io::ErrorKind::PermissionDenied => Self::Forbidden,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for NotExecuted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = match self.kind {
            Kind::CommandLine => "no shell reads it: write -- sh -c '…'",
            Kind::NotFound => "give its path, or a name that is found in PATH",
            Kind::NoInterpreter => "the file exists, but the interpreter that its first line names does not",
            Kind::Folder => "it is a folder",
            Kind::Forbidden => "make it executable (chmod +x), and let this user into its folder",
            Kind::Other => "is it a program for this machine?",
        };
        write!(out, "can't run {}: {}: {hint}", self.command.display(), self.cause)
    }
}

impl std::error::Error for NotExecuted {}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    fn refusal(command: &str, errno: Errno) -> (bool, String) {
        let refusal = NotExecuted::of(command.into(), errno.into());
        (refusal.is_not_found(), refusal.to_string())
    }

    #[test]
    fn each_cause_has_a_way_out() {
        let table = [
            ("no-such", Errno::NOENT, true, "found in PATH"),
            ("echo hi && sleep 1", Errno::NOENT, true, "sh -c"),
            ("./no/such", Errno::NOENT, true, "give its path"),
            ("/etc/passwd", Errno::NOENT, false, "interpreter"),
            ("/etc/passwd", Errno::ACCESS, false, "chmod +x"),
            ("/etc", Errno::ACCESS, false, "is a folder"),
            ("./program", Errno::NOEXEC, false, "for this machine"),
        ];
        for (command, errno, not_found, hint) in table {
            let (found, text) = refusal(command, errno);
            assert_eq!(found, not_found, "{text}");
            assert!(text.contains(hint), "{text}");
        }
    }
}
