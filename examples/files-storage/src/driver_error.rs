//! What can go wrong, and what it means to an election: the most important table of a backend.
//!
//! | error | of a write | of a read |
//! |---|---|---|
//! | closed | `Fatal` | `Fatal` |
//! | locked by another process, failed before the rename | `NotApplied` | `Unavailable` |
//! | failed at or after the rename, the runtime ended | `Unknown` | `Unavailable` |

use ielections::{ReadError, WriteError};
use std::io;
use tokio::task::JoinError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    #[error("this handle is closed: open another one")]
    Closed,
    #[error("another process has kept the folder locked for a second: look for one that is stopped or hangs")]
    Busy,
    #[error("the folder can't be used: {0}")]
    NotBegun(#[source] io::Error),
    #[error("a cell may or may not have been written: {0}")]
    MaybeDone(#[source] io::Error),
    #[error("a call ended before its work: {0}")]
    Lost(#[source] JoinError),
}

impl DriverError {
    pub(crate) fn into_write_error(self) -> WriteError {
        match self {
            Self::Closed => WriteError::Fatal(self.into()),
            Self::Busy | Self::NotBegun(_) => WriteError::NotApplied(self.into()),
            // (I7) Every error that leaves the outcome open.
            Self::MaybeDone(_) | Self::Lost(_) => WriteError::Unknown(self.into()),
        }
    }

    pub(crate) fn into_read_error(self) -> ReadError {
        match self {
            Self::Closed => ReadError::Fatal(self.into()),
            Self::Busy | Self::NotBegun(_) | Self::MaybeDone(_) | Self::Lost(_) => {
                ReadError::Unavailable(self.into())
            }
        }
    }
}
