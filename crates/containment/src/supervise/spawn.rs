//! [`start`]: starts a command and its keeper.

use super::keeper_handle::{ChildKeeper, KeeperHandle, NotRunning};
use crate::{
    containment::{Containment, Level},
    event::OnEvent,
    helpers::{HelperLines, Helpers},
    keeper,
    link::{self, Readable},
    messages::{FromKeeper, ToKeeper},
    namespace::{NamespaceRefusal, OUTSIDE_STAGE},
    stage,
};
use rustix::process::Pid;
use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    os::{fd::AsFd, unix::process::CommandExt as _},
    path::Path,
    sync::Arc,
};
use tokio::sync::watch;
use vvm_clock::Instant;

/// A command to start.
#[derive(Debug)]
pub struct CommandSpec<'a, Input, Guardian> {
    /// Its file and arguments.
    pub command: &'a [OsString],
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The lines of its helpers.
    pub helpers: &'a HelperLines,
    /// Its standard input.
    pub input: Input,
    /// A descriptor of the guardian's process: when that ends, everything is killed.
    pub guardian: Guardian,
    /// The process group to join; `None` for a new one.
    pub group: Option<Pid>,
    /// The containment in force.
    pub containment: &'a Containment,
    /// The kill deadline, as it moves.
    pub deadline: watch::Receiver<Option<Instant>>,
    /// Receives events.
    pub on_event: OnEvent,
}

/// Why no command runs.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The operating system refused the process.
    #[error("the system refuses a process or a descriptor: {0}")]
    System(io::Error),
    /// The system refused a PID namespace.
    #[error(transparent)]
    Containment(NamespaceRefusal),
    /// The command could not be executed.
    #[error(transparent)]
    NotExecuted(NotExecuted),
}

/// A command that is being started. If this is dropped, the keeper kills everything, and nothing waits for
/// that.
#[derive(Debug)]
pub struct Starting {
    pub(crate) keeper: KeeperHandle,
    pub(crate) helpers: Arc<Helpers>,
    pub(crate) on_event: OnEvent,
    command: OsString,
}

/// Starts the keeper, which starts the command. At level [`PidNamespace`](Level::PidNamespace), call it from
/// a thread that lives as long as the command, as the main thread: the kernel ends the namespace when the
/// *thread* that started it ends.
///
/// # Errors
/// If the system refuses. The command does not run then.
pub fn start<Input: AsFd, Guardian: AsFd>(
    order: &CommandSpec<'_, Input, Guardian>,
) -> Result<Starting, SpawnError> {
    begin(order).map_err(SpawnError::System)
}

fn begin<Input: AsFd, Guardian: AsFd>(order: &CommandSpec<'_, Input, Guardian>) -> io::Result<Starting> {
    let (link, far) = link::pair::<ToKeeper, FromKeeper>()?;
    let readable = Readable::of(&link)?;
    let inherits_group = order.containment.level() == Level::PidNamespace;
    let stage = if inherits_group { OUTSIDE_STAGE } else { keeper::STAGE };
    let mut process = stage::command(stage, stage::behind_dashes(order.command), far);
    process.env_clear().envs(order.environment.iter().cloned()).envs(order.helpers.environment());
    // A keeper has a group of its own: the terminal's signals are for the command. In a namespace the
    // terminal's group has no number, so the keeper is started in it, and the command inherits it.
    let group = order.group.filter(|_| inherits_group);
    process.process_group(group.map_or(0, Pid::as_raw_pid));
    let child = process.spawn()?;
    // Closes its end of the link here, so that it notices when this process ends.
    drop(process);
    let mut deadline = order.deadline.clone();
    let at_first = *deadline.borrow_and_update();
    let on_event = order.on_event.clone();
    let keeper = Arc::new(ChildKeeper::of(child, link, readable)?);
    let helpers = Helpers::new(order.helpers.clone(), Arc::clone(&keeper) as _, on_event.clone());
    // Before it may start anything (`supervisor::GuardianWatch`).
    order.containment.remember_keeper(keeper.process());
    let mut descriptors = vec![order.input.as_fd(), order.guardian.as_fd()];
    descriptors.extend(order.containment.group.as_ref().map(|group| group.as_fd()));
    keeper.begin(&ToKeeper::Begin { group: order.group, deadline: at_first }, &descriptors);
    let keeper = KeeperHandle::of(keeper, Arc::clone(&helpers), on_event.clone(), deadline);
    let command = order.command.first().cloned().unwrap_or_default();
    Ok(Starting { keeper, helpers, on_event, command })
}

impl Starting {
    /// Waits until the command is executed.
    ///
    /// # Errors
    /// If it could not be executed.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will.
    pub async fn executed(&mut self) -> Result<(), SpawnError> {
        loop {
            if let Some(executed) = self.keeper.executed() {
                return executed.map_err(|refusal| match refusal {
                    NotRunning::System(errno) => SpawnError::System(errno.into()),
                    NotRunning::Namespace(refusal) => SpawnError::Containment(refusal),
                    NotRunning::NotExecuted(errno) => {
                        SpawnError::NotExecuted(NotExecuted::of(self.command.clone(), errno.into()))
                    }
                });
            }
            self.keeper.changed().await;
        }
    }
}

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
