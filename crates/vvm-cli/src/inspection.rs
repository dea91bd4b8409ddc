//! Opens a storage for one operator command, on a runtime of its own.

use crate::{announce::say, exit, runtime};
use ielections::{Entropy as _, Incarnation, OsEntropy, ReadError, TtlStorage as _, WriteError};
use std::{
    fmt,
    io::{self, Write as _},
    num::NonZeroU32,
    process::ExitCode,
    time::Duration,
};
use vvm_clock::{SystemWallClock, WallClock as _};
use vvm_host::operate::{InspectError, Purpose, StorageInspector};
use vvm_storage::{Ask, ElectionKey};

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

/// As `inspect`. Prints the error, and returns the exit status: that of the error, or that of `act`.
pub(crate) fn operate(
    of: (&str, &str),
    purpose: Purpose,
    act: impl AsyncFnOnce(&StorageInspector) -> Result<u8, InspectionError>,
) -> ExitCode {
    inspect(of, purpose, act).unwrap_or_else(|refusal| refusal.conclude()).into()
}

pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub(crate) enum InspectionError {
    #[error(transparent)]
    Inspect(#[from] InspectError),
    #[error("{1}")]
    Status(u8, String),
}

impl From<io::Error> for InspectionError {
    fn from(cause: io::Error) -> Self {
        InspectError::system(cause).into()
    }
}

impl From<ReadError> for InspectionError {
    fn from(cause: ReadError) -> Self {
        InspectError::Read(cause).into()
    }
}

impl From<WriteError> for InspectionError {
    fn from(cause: WriteError) -> Self {
        Self::new(exit::STORAGE, cause)
    }
}

impl InspectionError {
    pub(crate) fn new(status: u8, why: impl ToString) -> Self {
        Self::Status(status, why.to_string())
    }

    /// Prints it, and returns the exit status. A closed pipe, as of `head`, is no error.
    pub(crate) fn conclude(&self) -> u8 {
        if let Self::Inspect(InspectError::Output(cause)) = self
            && cause.kind() == io::ErrorKind::BrokenPipe
        {
            return 0;
        }
        say!("{self}");
        match self {
            Self::Inspect(refusal) => refusal.status(),
            Self::Status(status, _) => *status,
        }
    }
}

pub(crate) fn slot_of(
    keys: Vec<ElectionKey>,
    number: NonZeroU32,
    name: &str,
) -> Result<ElectionKey, InspectionError> {
    let count = keys.len();
    let found = keys.into_iter().find(|key| key.slot.get() == number);
    found.ok_or_else(|| InspectionError::new(exit::MISUSE, format!("--slot {number}: {name} has {count}")))
}

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

pub(crate) fn print(inspector: &StorageInspector, line: impl fmt::Display) {
    let _ = writeln!(io::stdout().lock(), "{}: {line}", inspector.name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_stay_and_control_sequences_are_escaped() {
        assert_eq!(printable("can't run \"a\u{1b}[2J\""), "can't run \"a\\u{1b}[2J\"");
    }
}
