//! Starting a worker, and finding out whether the command could be executed.

use super::{
    aide::{AideLines, Aides, ByHost, ByInit, Starter},
    environment::Leadership,
    hold::{Apart, Hold},
    refusal::Refusal,
    reins::{Group, Reins},
};
use crate::{
    containment::{Containment, Level},
    link::{
        self, Heard, Link,
        message::{
            FromShim, ToShim,
            namespace::{FromInit, ToInit},
        },
    },
    namespace,
    readable::Readable,
    shortage::Shortage,
    stage,
};
use rustix::process::{Pid, getpid};
use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::Command,
    sync::Arc,
};

/// A command that is to become a worker.
#[derive(Debug)]
pub(crate) struct Order<'a, Input> {
    pub(crate) command: &'a [OsString],
    pub(crate) leadership: &'a Leadership,
    /// Variables of this process's environment that it shall not see.
    pub(crate) withheld: &'a [&'a str],
    /// What is to be had beside it.
    pub(crate) aides: &'a AideLines,
    /// The worker's standard input.
    pub(crate) input: Input,
    /// The process group to join; a new one of its own without.
    pub(crate) group: Option<Pid>,
    /// What else than this process shall hold it.
    pub(crate) containment: &'a Containment,
}

/// No worker.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnError {
    /// The operating system refused the process.
    #[error(transparent)]
    System(Shortage),
    /// There is nothing to contain it in.
    #[error(transparent)]
    Containment(namespace::refusal::Refusal),
    /// The command could not be executed.
    #[error(transparent)]
    Refused(Refusal),
}

impl SpawnError {
    fn of_system(cause: io::Error) -> Self {
        Self::System(cause.into())
    }

    /// The status of a shell that could not execute a command; none when it did not come to that.
    pub(crate) fn command_status(&self) -> Option<u8> {
        match self {
            Self::System(_) | Self::Containment(_) => None,
            Self::Refused(refusal) => Some(refusal.status()),
        }
    }
}

/// A worker's process on its way to the command.
#[derive(Debug)]
pub(crate) struct Starting {
    pub(crate) hold: Hold,
    pub(crate) aides: Arc<Aides>,
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
        let (hold, aides, parent) = match order.containment.level {
            Level::Guardian | Level::ControlGroup => {
                let environment = environment(order);
                let by_host = ByHost { environment, containment: order.containment.clone() };
                let aides = Aides::new(order.aides.clone(), Starter::Host(by_host));
                (Hold::Child(start_shim(order, far)?), aides, getpid())
            }
            Level::PidNamespace => {
                let (apart, aides) = start_apart(order, far)?;
                (Hold::Apart(apart), aides, Pid::INIT)
            }
        };
        if let (Some(group), Hold::Child(reins)) = (&order.containment.group, &hold) {
            // Before it is told to become the command. One that is never told ends.
            group.admit(reins.worker)?;
        }
        // A shim that has died already is found when it is reaped.
        let _ = link.say_with(&ToShim { parent }, &[order.input.as_fd()]);
        Ok((hold, aides, link, readable))
    };
    let (hold, aides, link, readable) = begin().map_err(SpawnError::of_system)?;
    Ok(Starting { hold, aides, link, readable, command: order.command.first().cloned().unwrap_or_default() })
}

/// The shim as a child of this process.
fn start_shim<Input>(order: &Order<'_, Input>, shim: OwnedFd) -> io::Result<Reins> {
    let worker = order.containment.start(stage_of(order, stage::WORKER, shim))?;
    let group = order.group.map_or(Group::Own, |group| Group::Terminal(Some(group)));
    Ok(Reins { worker, group })
}

/// The shim as a child of process 1 of a namespace of its own.
fn start_apart<Input>(order: &Order<'_, Input>, shim: OwnedFd) -> io::Result<(Apart, Arc<Aides>)> {
    let (link, far) = link::pair::<ToInit, FromInit>()?;
    let readable = Readable::of(&link)?;
    let outside = order.containment.start(stage_of(order, stage::NAMESPACE, far))?;
    // One that has ended already is found when it is reaped.
    let _ = link.say_with(&ToInit::Begin { shares_group: order.group.is_some() }, &[shim.as_fd()]);
    let link = Arc::new(link);
    let aides = Aides::new(order.aides.clone(), Starter::Init(ByInit { link: Arc::clone(&link) }));
    Ok((Apart::new(outside, link, Arc::clone(&aides), readable), aides))
}

fn stage_of<Input>(order: &Order<'_, Input>, stage: &str, far: OwnedFd) -> Command {
    // Only process 1 of a namespace has to start those.
    let aides = order.aides.arguments().filter(|_| stage == stage::NAMESPACE);
    let mut command = stage::command(stage, aides.chain(stage::behind_dashes(order.command)), far);
    command.env_clear().envs(environment(order));
    command.process_group(order.group.map_or(0, Pid::as_raw_pid));
    command
}

fn environment<Input>(order: &Order<'_, Input>) -> Vec<(OsString, OsString)> {
    order.leadership.environment(std::env::vars_os(), order.withheld)
}

impl Starting {
    /// Waits until the process has become the command.
    ///
    /// # Errors
    /// When it could not.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will.
    pub(crate) async fn executed(&mut self) -> Result<(), SpawnError> {
        let heard = self.readable.find(|| self.link.hear()).await.map_err(SpawnError::of_system)?;
        match heard {
            // The shim's end closes on exec; when there never was a shim; and when it is killed, which its reaping tells.
            Heard::End => self.hold.refusal().map_or(Ok(()), |refusal| Err(SpawnError::Containment(refusal))),
            Heard::Message(FromShim { errno }, _) => {
                let cause = io::Error::from_raw_os_error(errno);
                Err(SpawnError::Refused(Refusal::of(self.command.clone(), cause)))
            }
        }
    }
}
