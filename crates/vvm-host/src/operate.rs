//! What an operator asks of those who campaign and lead: `vvm pause`, `vvm resume`, `vvm step-down`.
//!
//! What lives here: how such a command ends. Each has a file of its own. Opening the storage for it is in `inspection.rs`;
//! what follows from a request, in `requests.rs`.

mod pause;
mod slots;
mod step_down;

pub(crate) use pause::{pause, resume};
pub(crate) use step_down::step_down;

use crate::{
    announce::say,
    cli::exit,
    inspection::{Desk, InspectError, Purpose, at_desk},
    neighbours::{LocalDir, Teller},
};
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

impl Desk {
    /// What tells a new request from every other.
    fn ask() -> Ask {
        let mut bytes = [0; 16];
        OsEntropy::default().fill(&mut bytes);
        Ask {
            incarnation: Incarnation::from_bytes(bytes),
            since_unix_epoch: SystemWallClock.since_unix_epoch(),
        }
    }

    /// Tells those who are to heed what was asked for, as far as they are on this machine, to look. Whoever is not told sees
    /// it by himself.
    fn tell_neighbours(&self, local_dir: Option<&LocalDir>) {
        if let Ok(neighbours) = Teller::to(local_dir.unwrap_or(&LocalDir::Usual), &self.name) {
            neighbours.tell();
        }
    }

    /// Tells whoever waits. That nobody reads it any more changes nothing.
    fn tell(&self, line: impl std::fmt::Display) {
        let _ = writeln!(io::stdout().lock(), "{}: {line}", self.name);
    }
}

/// Opens the storage, does it, and says what came of it.
pub(crate) fn conclude(
    (url, name): (&str, &str),
    purpose: Purpose,
    act: impl AsyncFnOnce(&Desk) -> Result<(), Refusal>,
) -> ExitCode {
    match at_desk((url, name), purpose, act) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            say!("{refusal}");
            refusal.status().into()
        }
    }
}
