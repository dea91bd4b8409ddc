//! What a guardian or a supervision has to report while it works. The caller decides whether a person hears
//! it.

use crate::{auxiliary::HelperError, processes::Ended, signals};
use rustix::process::{Pid, Signal};
use std::{fmt, io, sync::Arc};

/// What hears of events. May be called from any thread, and must not block.
#[derive(Clone)]
pub struct OnEvent(Arc<dyn Fn(Event) + Send + Sync>);

impl OnEvent {
    /// Calls `report` for each event.
    pub fn new(report: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }

    pub(crate) fn report(&self, event: Event) {
        (self.0)(event);
    }
}

impl fmt::Debug for OnEvent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("OnEvent")
    }
}

/// An event that needs no answer.
#[derive(Debug)]
pub enum Event {
    /// These processes run as another user. This one may not kill them, and waits for them. Reported once.
    OutOfReach(Vec<Pid>),
    /// A signal could not be passed on to the command.
    NotPassedOn {
        /// This signal.
        signal: Signal,
        /// For this reason.
        cause: io::Error,
    },
    /// The guardian's own timer could not be set, so that it confirmed nothing.
    TimerRefused(io::Error),
    /// [`PreStop`](crate::Helper::PreStop) was left out: the kill deadline is too near.
    NoTimeForPreStop,
    /// [`PreStop`](crate::Helper::PreStop) ended like this, and the command is told to stop nevertheless.
    PreStopFailed(Result<Ended, HelperError>),
    /// The process that keeps the command's namespace could not be told to kill a helper.
    HelperNotKilled(io::Error),
}

/// For people. A caller that names the helpers by its own options words those events itself.
impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfReach(processes) => {
                let list = processes.iter().map(Pid::to_string).collect::<Vec<_>>().join(", ");
                write!(out, "waiting for processes of another user, which this one may not kill: {list}")
            }
            Self::NotPassedOn { signal, cause } => {
                write!(out, "{} can't be passed on to the command: {cause}", signals::signal_name(*signal))
            }
            Self::TimerRefused(cause) => write!(out, "the guardian's timer can't be set: {cause}"),
            Self::NoTimeForPreStop => write!(out, "no time is left for the pre-stop helper"),
            Self::PreStopFailed(Ok(ended)) => {
                write!(out, "the pre-stop helper {ended}; the command is told to stop nevertheless")
            }
            Self::PreStopFailed(Err(cause)) => {
                write!(out, "the pre-stop helper {cause}; the command is told to stop nevertheless")
            }
            Self::HelperNotKilled(cause) => {
                write!(out, "process 1 of the command's namespace can't be told to kill: {cause}")
            }
        }
    }
}
