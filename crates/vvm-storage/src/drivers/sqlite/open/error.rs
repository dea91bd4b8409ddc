//! Why a database can't be opened, each with the way out.

use rusqlite::{ErrorCode, ffi};
use rustix::{
    fs::{Access, access},
    io::Errno,
};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

/// Why a database file could not be opened. Nothing that was there has been changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path is empty.
    #[error("no path to a database file")]
    NoPath,
    /// The folder is missing: it may be a mistake in the path, so it is not created.
    #[error("there is no folder {}: create it (mkdir -p), or mend the path", .0.display())]
    NoFolder(PathBuf),
    /// There is something else than a file.
    #[error("{} is not a file: name the database file itself", .0.display())]
    NotAFile(PathBuf),
    /// The file has several names, or is mounted alone.
    #[error(
        "{} is {how}: who reaches it by another name would not see what is written here, and both could lead; \
         share the folder that it is in", .path.display()
    )]
    Shared {
        /// The file.
        path: PathBuf,
        /// In which way it is shared.
        how: &'static str,
    },
    /// A file system whose locks or syncs can't be relied on, or one that nobody has tried.
    #[error(
        "{} is on {file_system}, where locks between processes can't be relied on: use a local file system ({supported})",
        .path.display()
    )]
    FileSystem {
        /// The file or its folder.
        path: PathBuf,
        /// What file system it is.
        file_system: String,
        /// Those that would do.
        supported: String,
    },
    /// The file may be in a container's own layer.
    #[error(
        "{} is on overlayfs: containers of one image have a file of their own each at this path, and a candidate in each \
         of them would lead. Name a file on a volume or a bind mount; or, if all candidates see this overlay, add \
         `?allow=overlay` to the URL", .0.display()
    )]
    Overlay(PathBuf),
    /// The file can't be written.
    #[error("{} can't be written: mend its permissions, or its mount", .0.display())]
    ReadOnlyFile(PathBuf),
    /// The folder can't be written.
    #[error(
        "the folder {} can't be written, but the database needs two more files in it: mend its permissions, or its mount",
        .0.display()
    )]
    ReadOnlyFolder(PathBuf),
    /// This user may only read it, and nobody has it open now.
    #[error(
        "{} can't be written by this user, who can look into it only while a candidate has it open: look again then, or as a \
         user who may write file and folder", .0.display()
    )]
    OnlyWhileInUse(PathBuf),
    /// Not a database at all.
    #[error("{} is not a database: name another file, or move it away", .0.display())]
    NotADatabase(PathBuf),
    /// A database of another program.
    #[error("{} is a database of another program: name another file", .0.display())]
    OfAnotherProgram(PathBuf),
    /// Made by a newer version of this driver.
    #[error(
        "{} was made by a newer version (format {found}, this one knows {known}): use the newer version", .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format that this driver knows.
        known: i64,
    },
    /// Another process keeps it locked.
    #[error(
        "{} has been locked by another process for five seconds: look for one that is stopped, or has it open exclusively",
        .0.display()
    )]
    Locked(PathBuf),
    /// No room for it.
    #[error("there is no room on the disk for {}: make some", .0.display())]
    Full(PathBuf),
    /// A database that is broken.
    #[error("{} is damaged: restore it from a backup ({cause})", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        cause: rusqlite::Error,
    },
    /// Write-ahead logging is not to be had there.
    #[error("{} can't keep a write-ahead log, only {mode}: use a local file system", .path.display())]
    NoWriteAheadLog {
        /// The file.
        path: PathBuf,
        /// The journal mode that SQLite fell back to.
        mode: String,
    },
    /// The system refused to tell or to open.
    #[error("{} can't be opened: {cause}{}", .path.display(), way_out(path, cause))]
    System {
        /// The file or its folder.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// Anything else that SQLite says.
    #[error("{} can't be opened: {cause}", .path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        cause: rusqlite::Error,
    },
    /// The log was cut off under those that use it.
    #[error(
        "the log beside {} (its -wal) was deleted or truncated while somebody uses the database: stop everybody who \
         does, then start again, and leave these files alone", .0.display()
    )]
    LogCutOff(PathBuf),
    /// The process is out of descriptors.
    #[error("{} can't be opened, because this process may not open so many files: allow more (ulimit -n)", .0.display())]
    Descriptors(PathBuf),
    /// The process is out of threads.
    #[error(
        "no thread for the database: {0}: allow more processes and threads (ulimit -u, TasksMax=, pids.max)"
    )]
    Thread(#[source] io::Error),
    /// The thread panicked while it opened the database.
    #[error("the thread that opened the database ended before it had done so")]
    ThreadEnded,
}

fn way_out(path: &Path, cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => ": let this user into its folders",
        io::ErrorKind::NotFound if path.is_relative() => ": the working folder is gone; name the whole path",
        _ => "",
    }
}

/// What SQLite says, in our words. Which of file and folder is in the way it doesn't tell; the system does.
pub(super) fn of_sqlite(path: &Path, cause: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match cause.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            OpenError::Locked(path)
        }
        Some(ErrorCode::DiskFull) => OpenError::Full(path),
        // The log's index is made when the first one opens the database, and SQLite has a code of its own for
        // no room for it. It passes as a full disk does.
        _ if extended(&cause) == Some(ffi::SQLITE_IOERR_SHMSIZE) => OpenError::Full(path),
        _ if extended(&cause) == Some(ffi::SQLITE_IOERR_SHORT_READ) => OpenError::LogCutOff(path),
        Some(ErrorCode::NotADatabase) => OpenError::NotADatabase(path),
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Damaged { path, cause },
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            if path.exists() && access(&path, Access::READ_OK | Access::WRITE_OK).is_err() {
                return OpenError::ReadOnlyFile(path);
            }
            match path.parent() {
                Some(folder) if access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err() => {
                    OpenError::ReadOnlyFolder(folder.to_owned())
                }
                Some(folder) if lacks_descriptors(folder) => OpenError::Descriptors(path),
                _ => OpenError::Sqlite { path, cause },
            }
        }
        _ => OpenError::Sqlite { path, cause },
    }
}

/// Whether as many descriptors as a database needs (for itself, its log, its index, and its folder) are not
/// to be had. SQLite has closed its own by now, and doesn't tell what it lacked.
fn lacks_descriptors(folder: &Path) -> bool {
    const NEEDED: usize = 4;
    let opened = (0..NEEDED).map(|_| File::open(folder)).collect::<io::Result<Vec<_>>>();
    opened.is_err_and(|error| matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE)))
}

fn extended(cause: &rusqlite::Error) -> Option<i32> {
    cause.sqlite_error().map(|error| error.extended_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_room_is_told_from_a_broken_disk() {
        let told =
            |code| of_sqlite(Path::new("x"), rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        for no_room in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_SHMSIZE] {
            assert!(matches!(told(no_room), OpenError::Full(_)), "{no_room}");
        }
        assert!(matches!(told(ffi::SQLITE_IOERR_READ), OpenError::Sqlite { .. }));
    }
}
