use ielections::{ReadError, WriteError};
use rusqlite::ErrorCode;
use rustix::process::{Resource, getrlimit};

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum DriverError {
    #[error(
        "another process has kept the database locked for over a second: look for one that is stopped or \
         hangs"
    )]
    Busy,
    #[error("the disk is full: make room")]
    Full,
    #[error(
        "the database can't be written: correct the permissions of its file and folder, or its mount ({0})"
    )]
    ReadOnly(String),
    #[error("the database is damaged: stop all programs that use it and restore it from a backup ({0})")]
    Damaged(String),
    #[error(
        "the database file, or its -wal or -shm beside it, was deleted or replaced while it was in use: \
         restart all programs that use it, and leave these files alone"
    )]
    Replaced,
    #[error("another program has changed the database: {0}")]
    Foreign(String),
    #[error("the database failed: {0}")]
    Failed(String),
}

impl From<rusqlite::Error> for DriverError {
    fn from(error: rusqlite::Error) -> Self {
        let text = error.to_string();
        let Some(code) = error.sqlite_error_code() else {
            // Not from SQLite but from a column with a value of the wrong type.
            return Self::Damaged(text);
        };
        match code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
                Self::Busy
            }
            ErrorCode::DiskFull => Self::Full,
            ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::AuthorizationForStatementDenied => Self::ReadOnly(text),
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Self::Damaged(text),
            ErrorCode::Unknown
            | ErrorCode::TypeMismatch
            | ErrorCode::ConstraintViolation
            | ErrorCode::ApiMisuse
            | ErrorCode::TooBig => Self::Foreign(text),
            ErrorCode::SystemIoFailure => Self::Failed(text + &file_limit()),
            _ => Self::Failed(text),
        }
    }
}

/// The end of a message about a failed write, if a limit of this process may be its cause: SQLite keeps the error of
/// the system (EFBIG) to itself.
pub(super) fn file_limit() -> String {
    let limit = getrlimit(Resource::Fsize).current;
    limit.map_or_else(String::new, |bytes| {
        format!("; a file of this process may have {bytes} bytes: if that is the cause, let it have more (ulimit -f, LimitFSIZE=)")
    })
}

impl DriverError {
    pub(super) fn before_commit(self) -> WriteError {
        match self {
            Self::Replaced => WriteError::Replaced(self.into()),
            _ if self.is_permanent() => WriteError::Fatal(self.into()),
            _ => WriteError::NotApplied(self.into()),
        }
    }

    /// Of a write whose `COMMIT` failed, or whose files were replaced before it ended.
    pub(super) fn at_commit(self) -> WriteError {
        match self {
            Self::Replaced => WriteError::Replaced(self.into()),
            Self::Busy | Self::Full => WriteError::NotApplied(self.into()),
            Self::ReadOnly(_) => WriteError::Fatal(self.into()),
            // (I7) The log may contain the whole transaction.
            _ => WriteError::Unknown(self.into()),
        }
    }

    pub(super) fn into_read_error(self) -> ReadError {
        match self {
            Self::Replaced => ReadError::Replaced(self.into()),
            _ if self.is_permanent() => ReadError::Fatal(self.into()),
            _ => ReadError::Unavailable(self.into()),
        }
    }

    fn is_permanent(&self) -> bool {
        match self {
            Self::ReadOnly(_) | Self::Damaged(_) | Self::Foreign(_) | Self::Replaced => true,
            Self::Busy | Self::Full | Self::Failed(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::errors::kinds::of_write as kind;
    use rusqlite::ffi;

    fn driver_error(code: i32) -> DriverError {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None).into()
    }

    #[test]
    fn each_code_maps_as_documented() {
        let table = [
            (
                &[ffi::SQLITE_BUSY, ffi::SQLITE_BUSY_RECOVERY, ffi::SQLITE_LOCKED, ffi::SQLITE_PROTOCOL][..],
                "NotApplied",
                "NotApplied",
                false,
            ),
            (&[ffi::SQLITE_FULL], "NotApplied", "NotApplied", false),
            (
                &[ffi::SQLITE_READONLY, ffi::SQLITE_READONLY_DBMOVED, ffi::SQLITE_PERM, ffi::SQLITE_AUTH],
                "Fatal",
                "Fatal",
                true,
            ),
            (&[ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB], "Fatal", "Unknown", true),
            (
                &[
                    ffi::SQLITE_ERROR,
                    ffi::SQLITE_MISMATCH,
                    ffi::SQLITE_CONSTRAINT,
                    ffi::SQLITE_MISUSE,
                    ffi::SQLITE_TOOBIG,
                ],
                "Fatal",
                "Unknown",
                true,
            ),
            (
                &[
                    ffi::SQLITE_IOERR,
                    ffi::SQLITE_IOERR_FSYNC,
                    ffi::SQLITE_NOMEM,
                    ffi::SQLITE_CANTOPEN,
                    ffi::SQLITE_INTERRUPT,
                ],
                "NotApplied",
                "Unknown",
                false,
            ),
        ];
        for (codes, before, at, read_is_fatal) in table {
            for &code in codes {
                assert_eq!(kind(&driver_error(code).before_commit()), before, "{code} before COMMIT");
                assert_eq!(kind(&driver_error(code).at_commit()), at, "{code} at COMMIT");
                let read = driver_error(code).into_read_error();
                assert_eq!(matches!(read, ReadError::Fatal(_)), read_is_fatal, "{code} to a read: {read}");
            }
        }
        assert_eq!(kind(&DriverError::Replaced.before_commit()), "Replaced");
        assert_eq!(kind(&DriverError::Replaced.at_commit()), "Replaced");
        assert!(matches!(DriverError::Replaced.into_read_error(), ReadError::Replaced(_)));
    }
}
