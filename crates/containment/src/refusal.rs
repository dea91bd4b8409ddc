//! Why there is no PID namespace ([`NamespaceRefusal`]), or no command ([`NotExecuted`]), and what to do.

use rustix::io::Errno;
use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    path::Path,
};

/// The system refused a PID namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamespaceRefusal {
    /// The step that failed.
    pub step: SetupStep,
    /// The system's reason.
    pub errno: Errno,
}

/// The step that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupStep {
    /// A socket, a signal handler, or the signal for the parent's death.
    Link,
    /// The start of a process, or the wait for it.
    Process,
    /// The PID namespace, for a user who may make one.
    Namespace,
    /// The user namespace, which other users need.
    UserNamespace,
    /// The mapping of user and group, or a privilege that is given or dropped inside.
    Mapping,
    /// The mount of `/proc`, or a read from it.
    Proc,
}

impl NamespaceRefusal {
    /// Returns a refusal with the number of the system's `cause`, or with `EIO` if it has none.
    pub fn of_system(step: SetupStep, cause: &io::Error) -> Self {
        Self { step, errno: cause.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error) }
    }
}

impl fmt::Display for NamespaceRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = self.errno;
        match self.step {
            SetupStep::Link | SetupStep::Process => {
                write!(out, "the system refuses a process or a descriptor: {errno}")
            }
            SetupStep::Namespace => write!(
                out,
                "this kernel makes no PID namespace ({errno}): raise user.max_pid_namespaces (sysctl), or \
                 use a kernel that has them"
            ),
            SetupStep::UserNamespace | SetupStep::Mapping => write!(
                out,
                "this user may make no PID namespace, and no user namespace to make one in ({errno}): run as \
                 root or with CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN), have an administrator permit \
                 user namespaces (user.max_user_namespaces above 0, \
                 kernel.apparmor_restrict_unprivileged_userns=0)"
            ),
            SetupStep::Proc => write!(
                out,
                "a /proc for the namespace can't be mounted ({errno}), as in a container that hides parts of \
                 /proc: run it with a full one (docker run --security-opt systempaths=unconfined)"
            ),
        }
    }
}

impl std::error::Error for NamespaceRefusal {}

/// A command that could not be executed.
#[derive(Debug)]
pub struct NotExecuted {
    command: OsString,
    cause: io::Error,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    NotFound,
    /// No such file, and the name has spaces, as a command line has.
    CommandLine,
    /// The file exists; the interpreter that its first line or its format needs does not.
    NoInterpreter,
    Folder,
    Forbidden,
    Other,
}

impl NotExecuted {
    pub(crate) fn new(command: OsString, cause: io::Error) -> Self {
        let kind = Kind::new(&command, &cause);
        Self { command, cause, kind }
    }

    /// Returns whether there is no such command. A shell reports 127 then, and 126 for any other cause.
    pub fn is_not_found(&self) -> bool {
        matches!(self.kind, Kind::NotFound | Kind::CommandLine)
    }
}

impl Kind {
    fn new(command: &OsStr, cause: &io::Error) -> Self {
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

    #[test]
    fn message_names_the_cause_and_the_way_out() {
        let table = [
            (SetupStep::Namespace, Errno::NOSPC, "max_pid_namespaces"),
            (SetupStep::UserNamespace, Errno::PERM, "CAP_SYS_ADMIN"),
            (SetupStep::Mapping, Errno::PERM, "apparmor_restrict_unprivileged_userns"),
            (SetupStep::Proc, Errno::PERM, "systempaths=unconfined"),
        ];
        for (step, errno, way_out) in table {
            let text = NamespaceRefusal { step, errno }.to_string();
            assert!(text.contains(way_out), "{text}");
            assert!(text.contains(&errno.to_string()), "{text}");
        }
        let text =
            NamespaceRefusal::of_system(SetupStep::Link, &io::Error::from_raw_os_error(24)).to_string();
        assert!(text.contains("Too many open files"), "{text}");
    }

    fn refusal(command: &str, errno: Errno) -> (bool, String) {
        let refusal = NotExecuted::new(command.into(), errno.into());
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
