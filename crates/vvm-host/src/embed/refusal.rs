//! Why there is no host.

use crate::{cli::exit, http::CantListen, neighbours::UnfitFolder, shortage::way_out};
use ielections::record::HolderTooLong;
use std::io;
use vvm_deadman::ArmError;
use vvm_storage::{OpenError, SettleError};

/// Why a [`Host`](super::Host) could not be opened. Nothing runs, and nothing leads.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The storage's URL is wrong, or what it names can't be opened.
    #[error("storage {url}: {cause}")]
    Storage {
        /// What was asked for.
        url: String,
        /// What is wrong with it.
        #[source]
        cause: OpenError,
    },
    /// The cluster has another number of slots, or the storage does not say.
    #[error(transparent)]
    Slots(#[from] SettleError),
    /// The machine's name makes no holder: give one.
    #[error(transparent)]
    Holder(#[from] HolderTooLong),
    /// The address for HTTP can't be had.
    #[error("HTTP: {0}")]
    Http(#[from] CantListen),
    /// Neighbours can't be met in [`HostSettings::local_dir`](super::HostSettings), which was named.
    #[error("local_dir: {0}")]
    LocalDir(#[from] UnfitFolder),
    /// The kill deadline can't be enforced here.
    #[error(transparent)]
    Deadman(#[from] ArmError),
    /// The system refused a clock, a timer, a signal handler.
    #[error("the system refuses what a host needs: {0}{way_out}", way_out = way_out(.0))]
    System(#[from] io::Error),
}

impl HostError {
    /// The exit status that `vvm run` would have, as `docs/vvm-run.md` lists them: 64, 69, 71 or 78.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Storage { cause, .. } if cause.is_misuse() => exit::MISUSE,
            Self::Storage { cause, .. } if cause.is_of_system() => exit::SYSTEM,
            Self::Slots(SettleError::Differs { .. }) => exit::CONFLICT,
            Self::Storage { .. } | Self::Slots(_) => exit::STORAGE,
            Self::Holder(_) | Self::LocalDir(_) => exit::MISUSE,
            Self::Http(_) | Self::Deadman(_) | Self::System(_) => exit::SYSTEM,
        }
    }
}
