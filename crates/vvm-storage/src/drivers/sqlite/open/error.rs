//! [`OpenError`]: why a database file can't be opened; who owns it, and what a user can do who may not use it.

use rusqlite::{ErrorCode, ffi};
use rustix::{
    fs::{Access, access},
    io::Errno,
};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Why a database file could not be opened. Existing files were not changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path is empty.
    #[error("no path to a database file")]
    NoPath,
    /// The folder is missing. It is not created, since the path may be wrong.
    #[error("there is no folder {}: create it (mkdir -p), or correct the path", .0.display())]
    NoFolder(PathBuf),
    /// The path leads to something else than a file.
    #[error("{} is not a file: name the database file itself", .0.display())]
    NotAFile(PathBuf),
    /// The file has several names, or is mounted as a single file.
    #[error(
        "{} is {how}: a candidate with another name for it does not see what is written here, and both could \
         lead; share its folder", .path.display()
    )]
    Shared {
        /// The file.
        path: PathBuf,
        /// The way in which it is shared.
        how: &'static str,
    },
    /// On this file system, locks or syncs are unreliable or have not been tested.
    #[error(
        "{} is on {file_system}, where locks between processes are unreliable: use a local file system \
         ({supported})", .path.display()
    )]
    FileSystem {
        /// The file or its folder.
        path: PathBuf,
        /// Its file system.
        file_system: String,
        /// The supported file systems.
        supported: String,
    },
    /// The file may be in a container's own layer.
    #[error(
        "{} is on overlayfs: at this path, each container of an image has a file of its own, so a candidate \
         in each would lead. Name a file on a volume or a bind mount; or, if all candidates see this \
         overlay, add `?allow=overlay` to the URL", .0.display()
    )]
    Overlay(PathBuf),
    /// The file can't be written.
    #[error(
        "{} ({}) can't be written by this user ({}): correct its permissions or its mount",
        .0.display(), owner_and_mode(.0), this_user()
    )]
    ReadOnlyFile(PathBuf),
    /// The folder can't be written.
    #[error(
        "the folder {} can't be written, but the database needs two more files in it: correct its \
         permissions or its mount", .0.display()
    )]
    ReadOnlyFolder(PathBuf),
    /// This user may only read it, and no other process has it open.
    #[error(
        "{} can't be written by this user ({}), who can read it only while a candidate has it open: try \
         again then, or {}", .0.display(), this_user(), way_in(.0)
    )]
    OnlyWhileInUse(PathBuf),
    /// This user may not read it.
    #[error("{} can't be read by this user ({}): {}", .0.display(), this_user(), way_in(.0))]
    Unreadable(PathBuf),
    /// It is not a database.
    #[error("{} is not a database: name another file, or move it away", .0.display())]
    NotADatabase(PathBuf),
    /// It is a database of another program.
    #[error("{} is a database of another program: name another file", .0.display())]
    OfAnotherProgram(PathBuf),
    /// A newer version of this driver created it.
    #[error(
        "{} has format {found}, and this version knows formats up to {known}: use the newer \
         version", .path.display()
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
        "another process has locked {} for five seconds: look for one that is stopped, or has it open \
         exclusively",
        .0.display()
    )]
    Locked(PathBuf),
    /// The disk is full.
    #[error("the disk has no room for {}: make room", .0.display())]
    Full(PathBuf),
    /// The database is damaged.
    #[error("{} is damaged: restore it from a backup ({cause})", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        cause: rusqlite::Error,
    },
    /// SQLite can't use a write-ahead log there.
    #[error("{} can't keep a write-ahead log, only {mode}: use a local file system", .path.display())]
    NoWriteAheadLog {
        /// The file.
        path: PathBuf,
        /// The journal mode that SQLite uses instead.
        mode: String,
    },
    /// The system refused access.
    #[error("{} can't be opened: {cause}{}", .path.display(), way_out(path, cause))]
    System {
        /// The file or its folder.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// Any other error of SQLite.
    #[error("{} can't be opened: {cause}", .path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        cause: rusqlite::Error,
    },
    /// The log was deleted or truncated while other processes use it.
    #[error(
        "the log beside {} (its -wal) was deleted or truncated while the database is in use: stop all \
         programs that use it, start them again, and leave these files alone", .0.display()
    )]
    LogCutOff(PathBuf),
    /// The process is out of descriptors.
    #[error("{} can't be opened: this process has too many open files; allow more (ulimit -n)", .0.display())]
    Descriptors(PathBuf),
    /// The process is out of threads.
    #[error("the system refuses a thread for the database: {0}: allow more (ulimit -u, TasksMax=, pids.max)")]
    Thread(#[source] io::Error),
    /// The thread panicked while it opened the database.
    #[error("the thread that opened the database panicked")]
    ThreadEnded,
}

fn way_out(path: &Path, cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => ": give this user access to its folders",
        io::ErrorKind::NotFound if path.is_relative() => {
            ": the working folder is gone; give the absolute path"
        }
        _ => "",
    }
}

/// Maps an error of SQLite. SQLite does not say whether the file or its folder is the cause, so this asks the
/// system.
pub(super) fn of_sqlite(path: &Path, cause: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match cause.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            OpenError::Locked(path)
        }
        Some(ErrorCode::DiskFull) => OpenError::Full(path),
        // SQLite returns this code if the disk has no room for the log's index.
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

/// Whether the process lacks the descriptors that a database needs: for file, log, index and folder. SQLite
/// has closed its own by now, and does not say what it lacked.
fn lacks_descriptors(folder: &Path) -> bool {
    const NEEDED: usize = 4;
    let opened = (0..NEEDED).map(|_| File::open(folder)).collect::<io::Result<Vec<_>>>();
    opened.is_err_and(|error| matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE)))
}

fn extended(cause: &rusqlite::Error) -> Option<i32> {
    cause.sqlite_error().map(|error| error.extended_code)
}

/// Returns the owner and the mode of a file, as `owner payroll, mode 0600`.
pub(super) fn owner_and_mode(path: &Path) -> String {
    fs::metadata(path).map_or_else(
        |_| "owner unknown".to_owned(),
        |metadata| format!("owner {}, mode {:04o}", user(metadata.uid()), metadata.mode() & 0o7777),
    )
}

/// Returns owner and mode of the file at `path`, and whether its folder has another owner.
pub(crate) fn owners(path: &Path) -> String {
    let found = owner_and_mode(path);
    let (file_owner, folder_owner) = (owner(path), owner(folder(path)));
    if file_owner == folder_owner {
        return found;
    }
    format!("{found}; its folder belongs to {folder_owner}: can the candidates' user write the file?")
}

/// Returns what to do about a database that this user can't write or read: run as its owner or get the rights, unless the
/// user is the owner. Then file or folder have the wrong rights.
pub(super) fn way_in(path: &Path) -> String {
    let owner = owner(path);
    if owner != this_user() {
        let found = owner_and_mode(path);
        return format!(
            "run it as {owner}, or let this user read and write the file ({found}) and write its folder"
        );
    }
    let folder = folder(path);
    format!(
        "correct the rights of the file ({}), of its folder {} ({}), or its mount",
        owner_and_mode(path),
        folder.display(),
        owner_and_mode(folder)
    )
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the name of a file's owner.
fn owner(path: &Path) -> String {
    fs::metadata(path).map_or_else(|_| "its owner".to_owned(), |metadata| user(metadata.uid()))
}

/// Returns the name of the user that this process runs as.
pub(super) fn this_user() -> String {
    user(rustix::process::geteuid().as_raw())
}

/// Returns the name from the user database of this machine, or the number.
fn user(id: u32) -> String {
    let number = id.to_string();
    let list = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = list.lines().find_map(|user| {
        let mut fields = user.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    name.unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_and_broken_disk_are_different_errors() {
        let told =
            |code| of_sqlite(Path::new("x"), rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        for no_room in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_SHMSIZE] {
            assert!(matches!(told(no_room), OpenError::Full(_)), "{no_room}");
        }
        assert!(matches!(told(ffi::SQLITE_IOERR_READ), OpenError::Sqlite { .. }));
    }
}
