//! Starting a worker, and finding out whether the command could be executed.

use super::{environment::Leadership, refusal::Refusal};
use crate::{
    link::{
        self, Heard, Link,
        message::{FromShim, ToShim},
    },
    readable::Readable,
    stage,
};
use rustix::process::{Pid, getpid};
use std::{
    ffi::OsString,
    io,
    os::{fd::AsFd, unix::process::CommandExt as _},
};

/// A command that is to become a worker.
#[derive(Debug)]
pub(crate) struct Order<'a, Input> {
    pub(crate) command: &'a [OsString],
    pub(crate) leadership: &'a Leadership,
    /// The worker's standard input.
    pub(crate) input: Input,
    /// The process group to join; a new one of its own without.
    pub(crate) group: Option<Pid>,
}

/// No worker.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnError {
    /// The operating system refused the process.
    #[error("the system has no room for another process: {0}")]
    System(#[source] io::Error),
    /// The command could not be executed.
    #[error(transparent)]
    Refused(Refusal),
}

impl SpawnError {
    /// The status of a shell that could not execute a command; none when it did not come to that.
    pub(crate) fn command_status(&self) -> Option<u8> {
        match self {
            Self::System(_) => None,
            Self::Refused(refusal) => Some(refusal.status()),
        }
    }
}

/// A worker's process on its way to the command.
#[derive(Debug)]
pub(crate) struct Starting {
    pub(crate) pid: Pid,
    link: Link<ToShim, FromShim>,
    readable: Readable,
    command: OsString,
}

/// Starts the process. Must be called from the main thread: the kernel ends the worker when the *thread* that started
/// it ends, and only the main thread lives as long as the process.
///
/// # Errors
/// When the system refuses.
pub(crate) fn start<Input: AsFd>(order: &Order<'_, Input>) -> Result<Starting, SpawnError> {
    let begin = || {
        let (link, far) = link::pair()?;
        // Before there is a process, so that nothing can fail that would leave one behind.
        let readable = Readable::of(&link)?;
        let arguments = std::iter::once("--".into()).chain(order.command.iter().cloned());
        let mut command = stage::command(stage::WORKER, arguments, far);
        command.env_clear().envs(order.leadership.environment(std::env::vars_os()));
        command.process_group(order.group.map_or(0, Pid::as_raw_pid));
        let pid = stage::start(command)?;
        // A shim that has died already is found when it is reaped.
        let _ = link.say_with(&ToShim { host: getpid() }, &[order.input.as_fd()]);
        Ok((pid, link, readable))
    };
    let (pid, link, readable) = begin().map_err(SpawnError::System)?;
    Ok(Starting { pid, link, readable, command: order.command.first().cloned().unwrap_or_default() })
}

impl Starting {
    /// Waits until the process has become the command.
    ///
    /// # Errors
    /// When it could not.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will.
    pub(crate) async fn executed(&self) -> Result<(), SpawnError> {
        let heard = self.readable.find(|| self.link.hear()).await.map_err(SpawnError::System)?;
        match heard {
            // The shim's end closes on exec, and when it is killed, which its reaping tells.
            Heard::End => Ok(()),
            Heard::Message(FromShim { errno }, _) => {
                let cause = io::Error::from_raw_os_error(errno);
                Err(SpawnError::Refused(Refusal::of(self.command.clone(), cause)))
            }
        }
    }
}
