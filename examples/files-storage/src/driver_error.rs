//! What can go wrong, and what each of it means to an election: the most important table of a backend.
//!
//! | error | of a write | of a read |
//! |---|---|---|
//! | closed, damaged | `Fatal` | `Fatal` |
//! | locked by others, failed before the renaming | `NotApplied` | `Unavailable` |
//! | failed at or after the renaming, the runtime ended | `Unknown` | `Unavailable` |

use ielections::{ReadError, WriteError};
use std::io;
use tokio::task::JoinError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    #[error(transparent)]
    Closed(#[from] Closed),
    #[error("a record is damaged: {0}. Stop everybody, and restore or delete its file")]
    Damaged(String),
    #[error("another process has kept the folder locked for a second: look for one that is stopped or hangs")]
    Busy,
    #[error("the folder can't be used: {0}")]
    NotBegun(#[source] io::Error),
    #[error("a record may or may not have been written: {0}")]
    MaybeDone(#[source] io::Error),
    #[error("a call was not carried out to its end: {0}")]
    Lost(#[source] JoinError),
}

/// The handle is closed.
#[derive(Debug, thiserror::Error)]
#[error("this handle has been closed")]
pub(crate) struct Closed;

impl DriverError {
    pub(crate) fn into_write_error(self) -> WriteError {
        match self {
            Self::Closed(_) | Self::Damaged(_) => WriteError::Fatal(self.into()),
            Self::Busy | Self::NotBegun(_) => WriteError::NotApplied(self.into()),
            // (I7) Whoever can't tell says so.
            Self::MaybeDone(_) | Self::Lost(_) => WriteError::Unknown(self.into()),
        }
    }

    pub(crate) fn into_read_error(self) -> ReadError {
        match self {
            Self::Closed(_) | Self::Damaged(_) => ReadError::Fatal(self.into()),
            Self::Busy | Self::NotBegun(_) | Self::MaybeDone(_) | Self::Lost(_) => {
                ReadError::Unavailable(self.into())
            }
        }
    }
}
