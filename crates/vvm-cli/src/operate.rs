//! What an operator asks of those who campaign and lead: `vvm pause`, `vvm resume`, `vvm step-down`.
//!
//! What lives here: how such a command ends. Each has a file of its own. Opening the storage for it is in
//! `inspection.rs`; what follows from a request, in `requests.rs`.

mod pause;
mod slots;
mod step_down;

use crate::inspection::inspect;
pub(crate) use pause::{pause, resume};
pub(crate) use step_down::step_down;
use vvm_host::operate::{InspectError, Purpose, StorageInspector};

use crate::{announce::say, cli::exit};
use ielections::{Entropy as _, Incarnation, OsEntropy, ReadError, WriteError};
use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};
use vvm_clock::{SystemWallClock, WallClock as _};
use vvm_storage::Ask;

/// Why a request came to nothing, or not to what was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Inspect(#[from] InspectError),
    #[error("{0}")]
    Misuse(String),
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Nothing has happened.
    #[error("{0}")]
    Refused(String),
    /// It has begun, and has not (yet) come to what was asked for.
    #[error("{0}")]
    Unfinished(String),
}

impl From<io::Error> for Refusal {
    fn from(cause: io::Error) -> Self {
        InspectError::system(cause).into()
    }
}

impl From<ReadError> for Refusal {
    fn from(cause: ReadError) -> Self {
        InspectError::Read(cause).into()
    }
}

impl Refusal {
    fn status(&self) -> u8 {
        match self {
            Self::Inspect(refusal) => refusal.status(),
            Self::Misuse(_) => exit::MISUSE,
            Self::Write(_) => exit::STORAGE,
            Self::Refused(_) => exit::NOT_ACQUIRED,
            Self::Unfinished(_) => exit::UNFINISHED,
        }
    }
}

/// Between two looks at what has come of a request.
const LOOK: Duration = Duration::from_millis(100);

/// Returns what tells a new request from every other.
fn new_ask() -> Ask {
    let mut bytes = [0; 16];
    OsEntropy::default().fill(&mut bytes);
    Ask { incarnation: Incarnation::from_bytes(bytes), since_unix_epoch: SystemWallClock.since_unix_epoch() }
}

/// Prints a line about the name. A reader that is gone changes nothing.
fn tell(desk: &StorageInspector, line: impl std::fmt::Display) {
    let _ = writeln!(io::stdout().lock(), "{}: {line}", desk.name);
}

/// Opens the storage, does it, and says what came of it.
pub(crate) fn conclude(
    (url, name): (&str, &str),
    purpose: Purpose,
    act: impl AsyncFnOnce(&StorageInspector) -> Result<(), Refusal>,
) -> ExitCode {
    match inspect((url, name), purpose, act) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            say!("{refusal}");
            refusal.status().into()
        }
    }
}
