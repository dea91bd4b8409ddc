//! Maps errors of sled to those of the contract: the table in the driver's documentation, as code.

use ielections::{ReadError, WriteError};

/// An error of a database in use.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum DriverError {
    #[error("the database is damaged: stop the process and restore the folder from a backup ({0})")]
    Damaged(String),
    #[error("another program has changed the database: {0}")]
    Foreign(String),
    #[error("the disk failed or is full: {0}")]
    Disk(String),
}

impl From<::sled::Error> for DriverError {
    fn from(error: ::sled::Error) -> Self {
        let text = error.to_string();
        match error {
            ::sled::Error::Io(_) => Self::Disk(text),
            ::sled::Error::Corruption { .. } => Self::Damaged(text),
            ::sled::Error::CollectionNotFound(_)
            | ::sled::Error::Unsupported(_)
            | ::sled::Error::ReportableBug(_) => Self::Foreign(text),
        }
    }
}

impl DriverError {
    /// Returns the error of a write that has changed nothing.
    pub(super) fn before_write(self) -> WriteError {
        if self.is_permanent() { WriteError::Fatal(self.into()) } else { WriteError::NotApplied(self.into()) }
    }

    /// Returns the error of a write that may be in memory, in the log, or in both (I7).
    pub(super) fn while_writing(self) -> WriteError {
        WriteError::Unknown(self.into())
    }

    pub(super) fn into_read_error(self) -> ReadError {
        if self.is_permanent() { ReadError::Fatal(self.into()) } else { ReadError::Unavailable(self.into()) }
    }

    fn is_permanent(&self) -> bool {
        match self {
            Self::Damaged(_) | Self::Foreign(_) => true,
            Self::Disk(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn each_error_maps_as_documented() {
        let disk = || DriverError::from(::sled::Error::Io(io::ErrorKind::StorageFull.into()));
        assert!(matches!(disk().before_write(), WriteError::NotApplied(_)));
        assert!(matches!(disk().while_writing(), WriteError::Unknown(_)));
        assert!(matches!(disk().into_read_error(), ReadError::Unavailable(_)));
        let permanent = [
            ::sled::Error::Corruption { at: None, bt: () },
            ::sled::Error::CollectionNotFound("leader".into()),
            ::sled::Error::Unsupported(String::new()),
            ::sled::Error::ReportableBug(String::new()),
        ];
        for error in permanent {
            let driver_error = || DriverError::from(error.clone());
            assert!(matches!(driver_error().before_write(), WriteError::Fatal(_)), "{error}");
            assert!(matches!(driver_error().while_writing(), WriteError::Unknown(_)), "{error}");
            assert!(matches!(driver_error().into_read_error(), ReadError::Fatal(_)), "{error}");
        }
    }
}
