//! A storage that is only inspected: opened without creating it, and why that, or what came after, did not work.

use crate::{announce::say, cli::exit, shortage::Shortage};
use clock::Clock;
use ielections::ReadError;
use std::{io, process::ExitCode, sync::Arc};
use vvm_storage::ElectionsTtlStorage;

/// Why it ended, if nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InspectError {
    #[error("--storage: {0}")]
    Open(#[from] vvm_storage::OpenError),
    #[error("--storage {0}: only the process that has it open can see into it")]
    NotShared(String),
    #[error("--storage {0}: there is no such storage yet: the first `vvm run` creates it")]
    NoStorage(String),
    #[error(transparent)]
    Read(ReadError),
    #[error(transparent)]
    System(Shortage),
    #[error("can't write: {0}")]
    Output(io::Error),
}

impl InspectError {
    /// What the operating system refused.
    pub(crate) fn system(cause: io::Error) -> Self {
        Self::System(cause.into())
    }

    /// Says it, and with which status to exit. A reader that has seen enough, as `head`, is no error.
    pub(crate) fn conclude(&self) -> ExitCode {
        match self {
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            _ => say!("{self}"),
        }
        match self {
            Self::Open(cause) if cause.is_misuse() => exit::MISUSE,
            Self::Open(cause) if cause.is_of_system() => exit::SYSTEM,
            Self::Open(_) | Self::Read(_) => exit::STORAGE,
            Self::NotShared(_) => exit::MISUSE,
            Self::NoStorage(_) => exit::UNKNOWN,
            Self::System(_) | Self::Output(_) => exit::SYSTEM,
        }
        .into()
    }
}

/// Opens the storage at `url`, which must be there and must be one that processes share.
///
/// # Errors
/// [`InspectError`].
pub(crate) async fn open(url: &str, clock: &Arc<dyn Clock>) -> Result<ElectionsTtlStorage, InspectError> {
    if !vvm_storage::url::shared_between_processes(url)? {
        return Err(InspectError::NotShared(url.to_owned()));
    }
    if !vvm_storage::url::exists(url)? {
        return Err(InspectError::NoStorage(url.to_owned()));
    }
    Ok(ElectionsTtlStorage::new(vvm_storage::open(url, Arc::clone(clock)).await?))
}
