//! How one stage starts the next, and how that one takes up the link it was given.
//!
//! The link travels as standard input, because that is the one descriptor that a child can take over without
//! `unsafe`. The standard input that belongs there follows as the first descriptor over the link itself.

use crate::link::{Heard, Link, Message};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    net::{SocketType, sockopt::socket_type},
    process::Pid,
};
use std::{
    env,
    ffi::{OsStr, OsString},
    io, iter,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::Path,
    process::{Command, Stdio},
};

/// This very binary, even when its file was replaced or removed since (proc(5)).
pub const OWN_BINARY: &str = "/proc/self/exe";

/// What stands before the command among the arguments of a stage.
pub(crate) const DASHES: &str = "--";

/// A stage that can't begin.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// Another program than this one started the process.
    #[error("this command is internal: a process of the same program starts it")]
    NotAStage,
    /// The process that started this one has ended meanwhile. No process is left to tell.
    #[error("the process that started this one has ended")]
    Abandoned,
    /// There is nothing to read instead of the link.
    #[error("/dev/null can't be opened, which every stage needs: {0}: is /dev there, and all of it?")]
    NoNull(io::Error),
    /// The system refused a descriptor or memory.
    #[error("the system refuses a descriptor or memory: {0}")]
    System(io::Error),
}

/// The command that starts a stage with `far` for its end of the link. The caller adds environment and
/// process group.
pub(crate) fn command(
    stage: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = OsString>,
    far: OwnedFd,
) -> Command {
    let mut command = pass_on(stage, arguments);
    command.stdin(Stdio::from(far));
    command
}

/// The command that starts a stage with the link that was given to this process. The caller adds the rest.
pub(crate) fn pass_on(stage: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = OsString>) -> Command {
    let mut command = Command::new(OWN_BINARY);
    command.arg0(own_name()).arg(stage).args(arguments);
    command
}

/// What process listings show: the name of the program's file, as it was called.
fn own_name() -> OsString {
    let called = env::args_os().next().unwrap_or_default();
    Path::new(&called).file_name().unwrap_or(OsStr::new(OWN_BINARY)).to_owned()
}

/// The arguments of a stage that is to come to the user's command.
pub(crate) fn behind_dashes(command: &[OsString]) -> impl Iterator<Item = OsString> {
    iter::once(DASHES.into()).chain(command.iter().cloned())
}

/// Starts what `command` says.
///
/// # Errors
/// When the system has no room for another process.
pub(crate) fn start(mut command: Command) -> io::Result<Pid> {
    // The handle is dropped on purpose: the child is reaped by number, with all the others (`processes`).
    Ok(Pid::from_child(&command.spawn()?))
}

/// The link to the stage before, its first message, and the descriptors that came with it.
#[derive(Debug)]
pub(crate) struct TakenUp<Out, In> {
    pub(crate) link: Link<Out, In>,
    pub(crate) first: In,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// The link that the stage before gave this process, which is its standard input.
///
/// # Errors
/// When there is no such link.
pub(crate) fn given_link<Out: Message, In: Message>() -> Result<Link<Out, In>, StageError> {
    let input = rustix::stdio::stdin();
    if socket_type(input) != Ok(SocketType::SEQPACKET) {
        return Err(StageError::NotAStage);
    }
    let socket =
        rustix::io::fcntl_dupfd_cloexec(input, 3).map_err(|errno| StageError::System(errno.into()))?;
    Ok(Link::over(socket))
}

/// Takes up the link that the stage before gave this process, and its first message.
///
/// Afterwards standard input is empty.
///
/// # Errors
/// When there is no such link, its other end is gone already, or the system refuses what that takes.
pub(crate) fn take_up<Out: Message, In: Message>() -> Result<TakenUp<Out, In>, StageError> {
    let link = given_link()?;
    let null = open_null("/dev/null")?;
    rustix::stdio::dup2_stdin(null).map_err(|errno| StageError::System(errno.into()))?;
    link.wait();
    match link.hear() {
        Some(Heard::Message(first, descriptors)) => Ok(TakenUp { link, first, descriptors }),
        Some(Heard::End) | None => Err(StageError::Abandoned),
    }
}

fn open_null(path: &str) -> Result<OwnedFd, StageError> {
    let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    opened.map_err(|errno| match errno {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => StageError::System(errno.into()),
        _ => StageError::NoNull(errno.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a path of its own: few may take the machine's away (`exit_statuses` of vvm-host does, where
    /// permitted).
    #[test]
    fn a_null_that_is_not_there_is_named() {
        let refusal = open_null("/nowhere/null").unwrap_err();
        assert!(matches!(refusal, StageError::NoNull(_)), "{refusal:?}");
        assert!(refusal.to_string().starts_with("/dev/null can't be opened"), "{refusal}");
        assert!(open_null("/dev/null").is_ok());
    }
}
