use crate::{exit_status, http::CantListen, resource_limit::way_out, successor::SuccessorRefusal};
use ielections::{AcquireError, record::HolderTooLong};
use std::{
    fmt,
    io::{self, Write as _},
    pin::Pin,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use vvm_deadman::ArmError;
use vvm_orch::Problem;
use vvm_storage::{OpenError, SettleError};

/// Why a [`Host`](super::Host) could not be opened. Nothing runs, and nothing leads.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The storage's URL is wrong, or what it names can't be opened.
    #[error("storage: {0}")]
    Storage(#[source] OpenError),
    /// The storage stayed unusable as long as the host would wait to lead: for this reason, or without an answer.
    #[error(
        "the storage could not be opened in time: {}",
        .0.as_ref().map_or_else(|| "it does not answer".to_owned(), ToString::to_string)
    )]
    StorageTimedOut(#[source] Option<Box<HostError>>),
    /// The storage needs a longer [`HostSettings::ttl`](super::HostSettings).
    #[error(transparent)]
    TtlTooShort(AcquireError),
    /// The cluster has another number of slots, or its number could not be settled.
    #[error(transparent)]
    Slots(#[from] SettleError),
    /// The machine's name is too long for a holder: set [`HostSettings::holder`](super::HostSettings).
    #[error(transparent)]
    Holder(#[from] HolderTooLong),
    /// The HTTP server can't listen at its address.
    #[error("HTTP: {0}")]
    Http(#[from] CantListen),
    /// This host can take no part in succession.
    #[error("successor: {0}")]
    Successor(#[from] SuccessorRefusal),
    /// The kill deadline can't be enforced here.
    #[error(transparent)]
    Deadman(#[from] ArmError),
    /// The system refused a clock, a timer or a signal handler.
    #[error("the system refuses what a host needs: {0}{way_out}", way_out = way_out(.0))]
    System(#[from] io::Error),
}

impl HostError {
    /// Returns the exit status that `vvm run` would have, from `docs/operations.md`: 64, 69, 71, 75 or 78.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Storage(cause) => exit_status::of_open_error(cause),
            Self::Slots(SettleError::Differs { .. }) => exit_status::CONFLICT,
            Self::Slots(_) => exit_status::STORAGE,
            Self::StorageTimedOut(_) => exit_status::NOT_ACQUIRED,
            Self::Holder(_) | Self::TtlTooShort(_) => exit_status::MISUSE,
            Self::Successor(refusal) if refusal.is_misuse() => exit_status::MISUSE,
            Self::Http(_) | Self::Successor(_) | Self::Deadman(_) | Self::System(_) => exit_status::SYSTEM,
        }
    }

    /// Prints the text to standard error, and returns [`exit_status`](Self::exit_status) for `main` to return. A `main`
    /// that returns the error itself ends with 1.
    pub fn report(&self) -> ExitCode {
        // It may be closed, which `eprintln` answers with a panic.
        _ = writeln!(io::stderr(), "{self}");
        self.exit_status().into()
    }
}

/// How [`Host::run`](super::Host::run) ended. All services have stopped, unless it [leaves work](Self::leaves_work).
#[derive(Clone, Debug, thiserror::Error)]
pub enum HostOutcome {
    /// By a signal, or by [`Host::stop`](super::Host::stop).
    #[error("stopped")]
    Stopped,
    /// The storage could not be opened.
    #[error(transparent)]
    NotOpened(Arc<HostError>),
    /// A loss, a service that ended or failed, or a campaign without success.
    #[error(transparent)]
    Problem(Problem),
}

impl HostOutcome {
    /// Whether work may still run in this process, as after a service that panicked or did not stop. The record is left to
    /// expire then. End the process.
    pub fn leaves_work(&self) -> bool {
        matches!(self, Self::Problem(problem) if problem.leaves_work())
    }

    /// Returns the exit status that `vvm run` would have: 0 after a stop, or when a service had done its
    /// work; 64, 69, 71, 75, 78 and 79 as `docs/operations.md` lists them; 1 for a service that failed.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Stopped | Self::Problem(Problem::Ended { failure: None, .. }) => 0,
            Self::Problem(Problem::Lost(_)) => exit_status::LOST,
            Self::Problem(Problem::NotAcquired(refusal)) => match **refusal {
                AcquireError::TimedOut { .. } | AcquireError::LeaderSeen { .. } => exit_status::NOT_ACQUIRED,
                AcquireError::TtlTooShort { .. }
                | AcquireError::NoSlots
                | AcquireError::SuccessorOfManySlots
                | AcquireError::SupportPeriod(_)
                | AcquireError::SupportTooShort { .. } => exit_status::MISUSE,
                AcquireError::Refused(_) | AcquireError::EpochWentBack { .. } => exit_status::STORAGE,
                AcquireError::Closing | AcquireError::Deadman(_) => exit_status::SYSTEM,
            },
            Self::NotOpened(error) => error.exit_status(),
            Self::Problem(_) => 1,
        }
    }
}

impl From<HostOutcome> for ExitCode {
    fn from(ended: HostOutcome) -> Self {
        ended.exit_status().into()
    }
}

/// What a host does after a campaign has ended.
pub enum Next {
    /// It ends.
    Stop,
    /// It campaigns again after this pause. A stop ends the pause and the host.
    CampaignAfter(Duration),
    /// It campaigns again once this is ready. A stop drops it.
    CampaignWhen(Pin<Box<dyn Future<Output = ()> + Send>>),
}

impl fmt::Debug for Next {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stop => out.write_str("Stop"),
            Self::CampaignAfter(pause) => write!(out, "CampaignAfter({pause:?})"),
            Self::CampaignWhen(_) => out.write_str("CampaignWhen(..)"),
        }
    }
}
