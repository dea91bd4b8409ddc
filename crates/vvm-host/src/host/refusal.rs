//! [`HostError`]: why a host could not be opened.

use crate::{exit_status, http::CantListen, resource_limit::way_out};
use ielections::{AcquireError, record::HolderTooLong};
use std::io;
use vvm_deadman::ArmError;
use vvm_storage::{OpenError, SettleError};

/// Why a [`Host`](super::Host) could not be opened. Nothing runs, and nothing leads.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The storage's URL is wrong, or what it names can't be opened.
    #[error("storage: {0}")]
    Storage(#[source] OpenError),
    /// The storage stayed unusable for as long as the host would have waited for leadership.
    #[error("the storage could not be opened in time: {0}")]
    StorageTimedOut(String),
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
            Self::Http(_) | Self::Deadman(_) | Self::System(_) => exit_status::SYSTEM,
        }
    }
}
