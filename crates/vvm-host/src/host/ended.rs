//! [`Ended`]: how a host ended, and the exit status for it.

use super::HostError;
use crate::exit_status;
use ielections::AcquireError;
use std::{fmt, process::ExitCode, sync::Arc};
use vvm_orch::Problem;

/// How [`Host::run`](super::Host::run) ended. All services have stopped by then, unless the problem says that
/// one has not.
#[derive(Clone, Debug)]
pub enum Ended {
    /// By a signal, or by [`Host::stop`](super::Host::stop).
    Stopped,
    /// The storage could not be opened.
    NotOpened(Arc<HostError>),
    /// A loss, a service that ended or failed, or a campaign without success.
    Problem(Problem),
}

impl Ended {
    /// Returns the exit status that `vvm run` would have: 0 after a stop, or when a service had done its
    /// work; 64, 69, 71, 75 and 79 as `docs/operations.md` lists them; 1 for a service that failed.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Stopped | Self::Problem(Problem::Ended { failure: None, .. }) => 0,
            Self::Problem(Problem::Lost(_)) => exit_status::LOST,
            Self::Problem(Problem::NotAcquired(refusal)) => match **refusal {
                AcquireError::TimedOut { .. } | AcquireError::LeaderSeen { .. } => exit_status::NOT_ACQUIRED,
                AcquireError::TtlTooShort { .. } | AcquireError::NoSlots => exit_status::MISUSE,
                AcquireError::Refused(_) | AcquireError::EpochWentBack { .. } => exit_status::STORAGE,
                AcquireError::Closing | AcquireError::Deadman(_) => exit_status::SYSTEM,
            },
            Self::NotOpened(error) => error.exit_status(),
            Self::Problem(_) => 1,
        }
    }
}

impl From<Ended> for ExitCode {
    fn from(ended: Ended) -> Self {
        ended.exit_status().into()
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => out.write_str("stopped"),
            Self::NotOpened(error) => error.fmt(out),
            Self::Problem(problem) => problem.fmt(out),
        }
    }
}
