use super::keeper_handle::{ChildKeeper, Helpers, KeeperHandle, NotRunning};
use crate::{
    containment::{Containment, Level},
    event::OnEvent,
    keeper,
    launch::{self, HelperLines},
    link::{self, ReadableLink},
    messages::{FromKeeper, ToKeeper},
    namespace::OUTSIDE_STAGE,
    refusal::{NamespaceRefusal, NotExecuted},
};
use rustix::process::Pid;
use std::{
    ffi::OsString,
    io,
    os::{fd::AsFd, unix::process::CommandExt as _},
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;
use vvm_clock::Instant;

/// The keeper kills without an order when this part of the time for killing is left. Half for each: a busy machine
/// delays the order of a running supervisor, and the start of the keeper of a stopped one.
const KEEPER_SHARE: u32 = 2;

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
    /// [`StopTimeouts::killing`](crate::StopTimeouts::killing). If this process is stopped, the keeper kills without an
    /// order when half of it is left.
    pub killing: Duration,
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

impl SpawnError {
    pub(crate) fn new(command: &OsString, refusal: NotRunning) -> Self {
        match refusal {
            NotRunning::System(errno) => Self::System(errno.into()),
            NotRunning::Namespace(refusal) => Self::Containment(refusal),
            NotRunning::NotExecuted(errno) => {
                Self::NotExecuted(NotExecuted::new(command.clone(), errno.into()))
            }
        }
    }
}

/// A command that is being started. If this is dropped, the keeper kills everything, and nothing waits for that.
#[derive(Debug)]
pub struct Starting {
    pub(crate) keeper: KeeperHandle,
    pub(crate) helpers: Arc<Helpers>,
    pub(crate) on_event: OnEvent,
    pub(crate) command: OsString,
    pub(crate) process: Pid,
}

/// Starts the keeper, which starts the command. At level [`PidNamespace`](Level::PidNamespace), call it from a thread
/// that lives as long as the command, as the main thread: the kernel ends the namespace when the *thread* that started
/// it ends. Fails if the system refuses; the command does not run then.
pub fn start<Input: AsFd, Guardian: AsFd>(
    order: &CommandSpec<'_, Input, Guardian>,
) -> Result<Starting, SpawnError> {
    begin(order).map_err(SpawnError::System)
}

fn begin<Input: AsFd, Guardian: AsFd>(order: &CommandSpec<'_, Input, Guardian>) -> io::Result<Starting> {
    let (link, far) = link::pair::<ToKeeper, FromKeeper>()?;
    let readable = ReadableLink::new(&link)?;
    let inherits_group = order.containment.level() == Level::PidNamespace;
    let stage = if inherits_group { OUTSIDE_STAGE } else { keeper::STAGE };
    let mut process = launch::command(stage, launch::behind_dashes(order.command), far);
    process.env_clear().envs(order.environment.iter().cloned()).envs(order.helpers.environment());
    // A keeper has a group of its own: the terminal's signals are for the command. In a namespace the
    // terminal's group has no number, so the keeper is started in it, and the command inherits it.
    let group = order.group.filter(|_| inherits_group);
    process.process_group(group.map_or(0, Pid::as_raw_pid));
    let child = process.spawn()?;
    // Closes its end of the link here, so that it notices when this process ends.
    drop(process);
    let process = Pid::from_child(&child);
    let mut deadline = order.deadline.clone();
    let at_first = *deadline.borrow_and_update();
    let on_event = order.on_event.clone();
    let keeper = Arc::new(ChildKeeper::new(child, link, readable)?);
    let helpers = Helpers::new(order.helpers.clone(), Arc::clone(&keeper) as _, on_event.clone());
    // Before it may start anything (`supervisor::GuardianWatch`).
    order.containment.remember_keeper(keeper.process());
    let mut descriptors = vec![order.input.as_fd(), order.guardian.as_fd()];
    descriptors.extend(order.containment.group.as_ref().map(|group| group.as_fd()));
    let begin = ToKeeper::Begin {
        group: order.group,
        deadline: at_first,
        before_the_deadline: order.killing / KEEPER_SHARE,
    };
    keeper.begin(&begin, &descriptors)?;
    let keeper = KeeperHandle::new(keeper, Arc::clone(&helpers), on_event.clone(), deadline);
    let command = order.command.first().cloned().unwrap_or_default();
    Ok(Starting { keeper, helpers, on_event, command, process })
}

impl Starting {
    /// Returns the number of the keeper: every process of the command is a descendant of it. The supervision reaps it,
    /// so that no other process has the number before the supervision has ended.
    pub fn keeper(&self) -> Pid {
        self.process
    }
}
