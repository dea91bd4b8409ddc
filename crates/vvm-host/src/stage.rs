//! The stages of `vvm run` are one binary: guardian, host, and the shim that becomes the worker. Here is how one stage
//! starts the next, and how that one takes up the link it was given.
//!
//! The link travels as standard input, because that is the one descriptor that a child can take over without `unsafe`;
//! the standard input that belongs there follows as the first descriptor over the link itself.

use crate::{
    announce::say,
    cli::exit,
    link::{Heard, Link, message::Message},
    shortage::Shortage,
};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    net::{SocketType, sockopt::socket_type},
    process::Pid,
};
use std::{
    ffi::OsString,
    io, iter,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    process::{Command, ExitCode, Stdio},
};

/// This very binary, even when its file was replaced or removed since (proc(5)).
pub(crate) const OWN_BINARY: &str = "/proc/self/exe";

/// The name of the hidden command that starts the host.
pub(crate) const HOST: &str = "stage-host";
/// The name of the hidden command that starts the shim of a worker.
pub(crate) const WORKER: &str = "stage-worker";
/// The name of the hidden command that makes a PID namespace for a worker.
pub(crate) const NAMESPACE: &str = "stage-namespace";
/// The name of the hidden command that is process 1 of that namespace.
pub(crate) const INIT: &str = "stage-init";

/// There is no stage before this one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeUpError {
    /// Somebody else started the process.
    #[error("this command is for vvm's own use: start `vvm run` instead")]
    NotAStage,
    /// It ended while this one was starting.
    #[error("the vvm that started this process has ended")]
    Abandoned,
    /// There is nothing to read instead of the link.
    #[error(
        "/dev/null can't be opened, which every process of vvm needs: {0}: is /dev there, and all of it?"
    )]
    NoNull(Errno),
    /// The system refused.
    #[error(transparent)]
    System(#[from] Shortage),
}

impl TakeUpError {
    /// What it is said and ended with: nothing where nobody is left who would read it.
    pub(crate) fn conclude(&self) -> ExitCode {
        if !matches!(self, Self::Abandoned) {
            say!("{self}");
        }
        self.status().into()
    }

    fn status(&self) -> u8 {
        match self {
            Self::NotAStage => exit::MISUSE,
            Self::Abandoned | Self::NoNull(_) | Self::System(_) => exit::SYSTEM,
        }
    }
}

/// The command that starts a stage with `far` for its end of the link. The caller adds environment and process group.
pub(crate) fn command(stage: &str, arguments: impl IntoIterator<Item = OsString>, far: OwnedFd) -> Command {
    let mut command = pass_on(stage, arguments);
    command.stdin(Stdio::from(far));
    command
}

/// The command that starts a stage with the link that was given to this process. The caller adds the rest.
pub(crate) fn pass_on(stage: &str, arguments: impl IntoIterator<Item = OsString>) -> Command {
    let mut command = Command::new(OWN_BINARY);
    command.arg0("vvm").arg(stage).args(arguments);
    command
}

/// The arguments of a stage that is to come to the user's command.
pub(crate) fn behind_dashes(command: &[OsString]) -> impl Iterator<Item = OsString> {
    iter::once("--".into()).chain(command.iter().cloned())
}

/// Starts what `command` says.
///
/// # Errors
/// When the system has no room for another process.
pub(crate) fn start(mut command: Command) -> io::Result<Pid> {
    // The handle is dropped on purpose: whoever ends is reaped by number, with all the others (`processes`).
    Ok(Pid::from_child(&command.spawn()?))
}

/// The link to the stage before, its first message, and the descriptors that came with it.
#[derive(Debug)]
pub(crate) struct TakenUp<Out, In> {
    pub(crate) link: Link<Out, In>,
    pub(crate) first: In,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// The link that the stage before gave us, which is our standard input.
///
/// # Errors
/// When there is no such link.
pub(crate) fn given_link<Out: Message, In: Message>() -> Result<Link<Out, In>, TakeUpError> {
    let input = rustix::stdio::stdin();
    if socket_type(input) != Ok(SocketType::SEQPACKET) {
        return Err(TakeUpError::NotAStage);
    }
    let socket = rustix::io::fcntl_dupfd_cloexec(input, 3).map_err(Shortage::from)?;
    Ok(Link::over(socket))
}

/// Takes up the link that the stage before gave us, and its first message.
///
/// Afterwards standard input is empty.
///
/// # Errors
/// When there is no such link, its other end is gone already, or the system refuses what that takes.
pub(crate) fn take_up<Out: Message, In: Message>() -> Result<TakenUp<Out, In>, TakeUpError> {
    let link = given_link()?;
    rustix::stdio::dup2_stdin(open_null("/dev/null")?).map_err(Shortage::from)?;
    link.wait();
    match link.hear() {
        Some(Heard::Message(first, descriptors)) => Ok(TakenUp { link, first, descriptors }),
        Some(Heard::End) | None => Err(TakeUpError::Abandoned),
    }
}

fn open_null(path: &str) -> Result<OwnedFd, TakeUpError> {
    let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    opened.map_err(|errno| match errno {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => TakeUpError::System(errno.into()),
        _ => TakeUpError::NoNull(errno),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a path of its own, since few may take the machine's away: `tests/cases/exit_statuses.rs` does, where it is let.
    #[test]
    fn a_null_that_is_not_there_is_named_with_its_status() {
        let refusal = open_null("/nowhere/null").unwrap_err();
        assert!(matches!(refusal, TakeUpError::NoNull(Errno::NOENT)), "{refusal:?}");
        assert!(refusal.to_string().starts_with("/dev/null can't be opened"), "{refusal}");
        assert_eq!(refusal.status(), 71);
        assert!(open_null("/dev/null").is_ok());
    }
}
