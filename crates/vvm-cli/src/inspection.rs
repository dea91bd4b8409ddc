//! Opens a storage for one operator command, on a runtime of its own.

use crate::{announce::say, exit, runtime};
use ielections::{Entropy as _, Incarnation, OsEntropy, ReadError, TtlStorage as _, WriteError};
use std::{
    fmt,
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};
use vvm_clock::{SystemWallClock, WallClock as _};
use vvm_host::operate::{InspectError, Purpose, StorageInspector};
use vvm_storage::Ask;

/// Prints `error` and returns the exit status. A closed pipe, as of `head`, is no error.
pub(crate) fn conclude(error: &InspectError) -> u8 {
    if matches!(error, InspectError::Output(cause) if cause.kind() == io::ErrorKind::BrokenPipe) {
        return 0;
    }
    say!("{error}");
    error.status()
}

/// Opens the storage at `url`, runs `act` with it, and closes it.
///
/// # Errors
/// [`InspectError`], as part of the error of `act`.
pub(crate) fn inspect<T, E: From<InspectError>>(
    (url, name): (&str, &str),
    purpose: Purpose,
    act: impl AsyncFnOnce(&StorageInspector) -> Result<T, E>,
) -> Result<T, E> {
    let runtime = runtime::start().map_err(InspectError::system)?;
    runtime.block_on(async {
        let inspector = StorageInspector::open(url, name, purpose).await?;
        let done = act(&inspector).await;
        inspector.storage.close().await;
        done
    })
}

/// Pause between two reads of a request's progress.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

/// Why a request failed, or did not come to the wanted end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Inspect(#[from] InspectError),
    #[error("{0}")]
    Misuse(String),
    #[error(transparent)]
    Write(#[from] WriteError),
    /// No candidate has campaigned for the name.
    #[error("{0}")]
    Unknown(String),
    /// Nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// The request has an effect, but not the wanted one, or not yet.
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
    /// Prints it, and returns the exit status.
    pub(crate) fn conclude(&self) -> u8 {
        if let Self::Inspect(refusal) = self {
            return conclude(refusal);
        }
        say!("{self}");
        self.status()
    }

    fn status(&self) -> u8 {
        match self {
            Self::Inspect(refusal) => refusal.status(),
            Self::Misuse(_) => exit::MISUSE,
            Self::Unknown(_) => exit::UNKNOWN,
            Self::Write(_) => exit::STORAGE,
            Self::Refused(_) => exit::NOT_ACQUIRED,
            Self::Unfinished(_) => exit::UNFINISHED,
        }
    }
}

/// Returns the identity of a new request.
pub(crate) fn new_ask() -> Ask {
    let mut bytes = [0; 16];
    OsEntropy::default().fill(&mut bytes);
    Ask { incarnation: Incarnation::from_bytes(bytes), since_unix_epoch: SystemWallClock.since_unix_epoch() }
}

/// Escapes what a terminal would not print: a record may contain anything, its control sequences included.
pub(crate) fn printable(text: &str) -> String {
    let escaped = |char: char| match char {
        '"' | '\'' => char.to_string(),
        _ => char.escape_debug().to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Prints a line about the name. A closed standard output does not fail the request.
pub(crate) fn print(inspector: &StorageInspector, line: impl fmt::Display) {
    let _ = writeln!(io::stdout().lock(), "{}: {line}", inspector.name);
}

/// Opens the storage, runs `act`, prints its error, and returns the exit status.
pub(crate) fn operate(
    (url, name): (&str, &str),
    purpose: Purpose,
    act: impl AsyncFnOnce(&StorageInspector) -> Result<(), Refusal>,
) -> ExitCode {
    inspect((url, name), purpose, act)
        .map_or_else(|refusal| refusal.conclude().into(), |()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_stay_and_control_sequences_are_escaped() {
        assert_eq!(printable("can't run \"a\u{1b}[2J\""), "can't run \"a\\u{1b}[2J\"");
    }
}
