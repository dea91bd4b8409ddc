//! Starting a command, and finding out whether the command could be executed.

use super::{
    alongside::Helpers,
    hold::{Apart, Hold},
    not_executed::NotExecuted,
    starter::{ByInit, BySupervisor, Starter},
};
use crate::{
    auxiliary::HelperLines,
    child_handle::{ChildHandle, Group},
    established::Containment,
    event::OnEvent,
    launch,
    level::Level,
    link::{self, Heard, Link},
    namespace::{
        self,
        message::{FromInit, ToInit},
        outside,
    },
    readable::Readable,
    shim::{self, FromShim, ToShim},
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

/// A command that is to be started.
#[derive(Debug)]
pub struct Order<'a, Input> {
    /// Its file and its arguments.
    pub command: &'a [OsString],
    /// All of its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// What is to be had beside it.
    pub helpers: &'a HelperLines,
    /// Its standard input.
    pub input: Input,
    /// The process group to join; a new one of its own without.
    pub group: Option<Pid>,
    /// What else than this process shall hold it.
    pub containment: &'a Containment,
    /// What hears of events.
    pub on_event: OnEvent,
}

/// No command runs.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The operating system refused the process.
    #[error("the system refuses a process or a descriptor: {0}")]
    System(io::Error),
    /// There is nothing to contain it in.
    #[error(transparent)]
    Containment(namespace::refusal::Refusal),
    /// The command could not be executed.
    #[error(transparent)]
    NotExecuted(NotExecuted),
}

/// A process on its way to the command.
#[derive(Debug)]
pub struct Starting {
    pub(crate) hold: Hold,
    pub(crate) helpers: Arc<Helpers>,
    pub(crate) containment: Containment,
    pub(crate) on_event: OnEvent,
    link: Link<ToShim, FromShim>,
    readable: Readable,
    command: OsString,
}

/// Starts the process. Must be called from the main thread: the kernel ends the command when the *thread* that started
/// it ends, and only the main thread lives as long as the process.
///
/// # Errors
/// When the system refuses.
pub fn start<Input: AsFd>(order: &Order<'_, Input>) -> Result<Starting, SpawnError> {
    let begin = || {
        let (link, far) = link::pair()?;
        // Before there is a process, so that nothing can fail that would leave one behind.
        let readable = Readable::of(&link)?;
        let (hold, helpers, parent) = match order.containment.level() {
            Level::Guardian | Level::ControlGroup => {
                let environment = order.environment.clone();
                let by = BySupervisor { environment, containment: order.containment.clone() };
                let helpers = Helpers::new(order.helpers.clone(), Starter::Supervisor(by));
                (Hold::Child(start_shim(order, far)?), helpers, getpid())
            }
            Level::PidNamespace => {
                let (apart, helpers) = start_apart(order, far)?;
                (Hold::Apart(apart), helpers, Pid::INIT)
            }
        };
        if let (Some(group), Hold::Child(child)) = (&order.containment.group, &hold) {
            // Before it is told to become the command. One that is never told ends.
            group.admit(child.pid)?;
        }
        // A shim that has died already is found when it is reaped.
        let _ = link.say_with(&ToShim { parent }, &[order.input.as_fd()]);
        Ok((hold, helpers, link, readable))
    };
    let (hold, helpers, link, readable) = begin().map_err(SpawnError::System)?;
    let command = order.command.first().cloned().unwrap_or_default();
    let (containment, on_event) = (order.containment.clone(), order.on_event.clone());
    Ok(Starting { hold, helpers, containment, on_event, link, readable, command })
}

/// The shim as a child of this process.
fn start_shim<Input>(order: &Order<'_, Input>, shim: OwnedFd) -> io::Result<ChildHandle> {
    let pid = order.containment.start(stage_of(order, shim::STAGE, shim))?;
    let group = order.group.map_or(Group::Own, |group| Group::Terminal(Some(group)));
    Ok(ChildHandle { pid, group })
}

/// The shim as a child of process 1 of a namespace of its own.
fn start_apart<Input>(order: &Order<'_, Input>, shim: OwnedFd) -> io::Result<(Apart, Arc<Helpers>)> {
    let (link, far) = link::pair::<ToInit, FromInit>()?;
    let readable = Readable::of(&link)?;
    let outside = order.containment.start(stage_of(order, outside::STAGE, far))?;
    // One that has ended already is found when it is reaped.
    let _ = link.say_with(&ToInit::Begin { shares_group: order.group.is_some() }, &[shim.as_fd()]);
    let link = Arc::new(link);
    let by = ByInit { link: Arc::clone(&link), on_event: order.on_event.clone() };
    let helpers = Helpers::new(order.helpers.clone(), Starter::Init(by));
    Ok((Apart::new(outside, link, Arc::clone(&helpers), order.on_event.clone(), readable), helpers))
}

fn stage_of<Input>(order: &Order<'_, Input>, stage: &str, far: OwnedFd) -> Command {
    // Only process 1 of a namespace has to start those.
    let helpers = order.helpers.arguments().filter(|_| stage == outside::STAGE);
    let mut command = launch::command(stage, helpers.chain(launch::behind_dashes(order.command)), far);
    command.env_clear().envs(order.environment.iter().cloned());
    command.process_group(order.group.map_or(0, Pid::as_raw_pid));
    command
}

impl Starting {
    /// Waits until the process has become the command.
    ///
    /// # Errors
    /// When it could not.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will.
    pub async fn executed(&mut self) -> Result<(), SpawnError> {
        let heard = self.readable.find(|| self.link.hear()).await.map_err(SpawnError::System)?;
        match heard {
            // The shim's end closes on exec; when there never was a shim; and when it is killed, which its reaping tells.
            Heard::End => self.hold.refusal().map_or(Ok(()), |refusal| Err(SpawnError::Containment(refusal))),
            Heard::Message(FromShim { errno }, _) => {
                let cause = io::Error::from_raw_os_error(errno);
                Err(SpawnError::NotExecuted(NotExecuted::of(self.command.clone(), cause)))
            }
        }
    }
}
