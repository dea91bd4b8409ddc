use crate::{launch::HelperError, processes::ProcessEnd, signal_table};
use rustix::process::{Pid, Signal};
use std::{fmt, io, sync::Arc};

/// Receives events. It must not block.
#[derive(Clone)]
pub struct OnEvent(Arc<dyn Fn(SupervisionEvent) + Send + Sync>);

impl OnEvent {
    /// Calls `report` for each event, from any thread.
    pub fn new(report: impl Fn(SupervisionEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }

    pub(crate) fn report(&self, event: SupervisionEvent) {
        (self.0)(event);
    }
}

impl fmt::Debug for OnEvent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("OnEvent")
    }
}

/// An event. None needs an answer.
#[derive(Debug)]
pub enum SupervisionEvent {
    /// These processes run as another user, so this process may not kill them and waits. Reported once.
    OutOfReach(Vec<Pid>),
    /// A signal could not be forwarded to the command.
    NotPassedOn {
        /// The signal.
        signal: Signal,
        /// The reason.
        cause: io::Error,
    },
    /// The supervisor has finished or was killed, but a thread of it hangs in the kernel. The guardian ends without it.
    LeftBehind(Pid),
    /// [`PreStop`](crate::Helper::PreStop) was skipped: the kill deadline is too near.
    NoTimeForPreStop,
    /// [`PreStop`](crate::Helper::PreStop) failed. The command is stopped all the same.
    PreStopFailed(Result<ProcessEnd, HelperError>),
    /// The command has ended by itself, and the processes that it left behind are stopped.
    LeftOver {
        /// How many there are.
        total: u32,
        /// The names of the first ones.
        names: Vec<String>,
    },
    /// The keeper could not be asked to kill a helper.
    HelperNotKilled(io::Error),
}

/// A message for people. A caller that names the helpers by its own options words their events itself.
impl fmt::Display for SupervisionEvent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfReach(processes) => {
                let list = processes.iter().map(Pid::to_string).collect::<Vec<_>>().join(", ");
                write!(out, "waiting for processes of another user, which this one may not kill: {list}")
            }
            Self::NotPassedOn { signal, cause } => {
                write!(
                    out,
                    "{} can't be passed on to the command: {cause}",
                    signal_table::signal_name(signal.as_raw())
                )
            }
            Self::LeftBehind(process) => write!(
                out,
                "process {process} has finished and can't be killed: a thread of it hangs in the kernel, \
                 as on a failing disk; ending without it"
            ),
            Self::NoTimeForPreStop => write!(out, "no time is left for the pre-stop helper"),
            Self::PreStopFailed(Ok(ended)) => {
                write!(out, "the pre-stop helper {ended}; the command is stopped all the same")
            }
            Self::PreStopFailed(Err(cause)) => {
                write!(out, "the pre-stop helper {cause}; the command is stopped all the same")
            }
            Self::LeftOver { total, names } => {
                let (processes, are) = if *total == 1 { ("process", "is") } else { ("processes", "are") };
                let more = if names.len() < *total as usize { ", …" } else { "" };
                write!(
                    out,
                    "the command has ended and left {total} {processes} behind, which {are} stopped: {}{more}",
                    names.join(", ").escape_debug()
                )
            }
            Self::HelperNotKilled(cause) => {
                write!(out, "the keeper can't be asked to kill a helper: {cause}")
            }
        }
    }
}
