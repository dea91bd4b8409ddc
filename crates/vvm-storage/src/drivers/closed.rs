//! [`Closed`] and [`Unanswered`]: errors of a handle, the same in every driver.

use ielections::{ReadError, WriteError};

/// The handle was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this handle of the storage is closed: open another one")]
pub(super) struct Closed;

/// The thread that owns the database is gone, and the answer with it.
#[cfg(any(feature = "sled", feature = "sqlite"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the thread that owns the database ended before it answered")]
pub(super) struct Unanswered;

impl From<Closed> for WriteError {
    fn from(closed: Closed) -> Self {
        Self::Fatal(closed.into())
    }
}

impl From<Closed> for ReadError {
    fn from(closed: Closed) -> Self {
        Self::Fatal(closed.into())
    }
}
