//! [`Obstacle`]: what keeps a file from being opened, and what to do about it.

use super::file_limit;
use crate::opening::{OpenError, OpenErrorKind};
use rusqlite::{ErrorCode, ffi};
use rustix::{
    fs::{Access, access, statvfs},
    io::Errno,
};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

#[derive(Debug)]
pub(in super::super) enum Obstacle {
    Locked(PathBuf),
    Other(OpenError),
}

impl From<Obstacle> for OpenError {
    fn from(obstacle: Obstacle) -> Self {
        match obstacle {
            Obstacle::Locked(path) => Self::passing(format!(
                "another process has locked {} for five seconds: look for one that is stopped, or has it open \
                 exclusively",
                path.display()
            )),
            Obstacle::Other(error) => error,
        }
    }
}

pub(super) fn refused(why: impl Into<String>) -> Obstacle {
    Obstacle::Other(OpenError::refused(why))
}

/// The message names the user who can. If this user owns the file, its rights or those of its mount are wrong.
pub(super) fn read_only_file(path: &Path) -> Obstacle {
    let (owner, user) = (owner(path), user(rustix::process::geteuid().as_raw()));
    let way_out = match owner == user {
        true => "correct its permissions or its mount".to_owned(),
        false => format!("run it as {owner}, or let this user read and write it, and write its folder"),
    };
    let (at, found) = (path.display(), owner_and_mode(path));
    refused(format!("{at} ({found}) can't be written by this user ({user}): {way_out}"))
}

fn read_only_folder(folder: &Path) -> Obstacle {
    refused(format!(
        "the folder {} ({}) can't be written, but the database needs two more files in it: correct its \
         permissions or its mount",
        folder.display(),
        owner_and_mode(folder)
    ))
}

pub(super) fn not_a_database(path: &Path) -> Obstacle {
    refused(format!("{} is not a database: name another file, or move it away", path.display()))
}

pub(super) fn of_system(path: &Path, cause: &io::Error) -> Obstacle {
    let at = path.display();
    refused(format!("{at} can't be opened: {cause}{}", way_out(path, cause)))
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

/// SQLite does not say whether the file or its folder is the cause, so this asks the system.
pub(super) fn of_sqlite(path: &Path, cause: rusqlite::Error) -> Obstacle {
    let at = path.display();
    let no_room = || {
        Obstacle::Other(OpenError::passing(format!(
            "the disk has no room for {at}: make room{}",
            file_limit()
        )))
    };
    let failed = || refused(format!("{at} can't be opened: {cause}"));
    match cause.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            Obstacle::Locked(path.to_owned())
        }
        Some(ErrorCode::DiskFull) => no_room(),
        // SQLite returns this code if the disk has no room for the log's index.
        _ if extended(&cause) == Some(ffi::SQLITE_IOERR_SHMSIZE) => no_room(),
        _ if extended(&cause) == Some(ffi::SQLITE_IOERR_SHORT_READ) => refused(format!(
            "the log beside {at} (its -wal) was deleted or truncated while the database is in use: stop all \
             programs that use it, start them again, and leave these files alone"
        )),
        // A limit of this process is like a disk without room: nothing else is wrong.
        Some(ErrorCode::SystemIoFailure) if !file_limit().is_empty() => {
            Obstacle::Other(OpenError::passing(format!("{at} can't be written: {cause}{}", file_limit())))
        }
        // SQLite tells a disk without room only by ENOSPC, and a quota is another number.
        _ if extended(&cause) == Some(ffi::SQLITE_IOERR_WRITE) => {
            Obstacle::Other(OpenError::passing(format!("{at} can't be written: {cause}: look for a quota")))
        }
        Some(ErrorCode::NotADatabase) => not_a_database(path),
        Some(ErrorCode::DatabaseCorrupt) => {
            refused(format!("{at} is damaged: restore it from a backup ({cause})"))
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            if path.exists() && access(path, Access::READ_OK | Access::WRITE_OK).is_err() {
                return read_only_file(path);
            }
            match path.parent() {
                Some(folder) if access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err() => {
                    read_only_folder(folder)
                }
                Some(folder) if lacks_inodes(folder) => no_room(),
                Some(folder) if lacks_descriptors(folder) => {
                    let why = "this process has too many open files; allow more (ulimit -n)";
                    let error = OpenError::new(OpenErrorKind::System, format!("{at} can't be opened: {why}"));
                    Obstacle::Other(error)
                }
                _ => failed(),
            }
        }
        _ => failed(),
    }
}

/// Whether its file system can make no further file. One that counts none has a total of 0.
fn lacks_inodes(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|there| there.f_files > 0 && there.f_favail == 0)
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

fn owner_and_mode(path: &Path) -> String {
    fs::metadata(path).map_or_else(
        |_| "owner unknown".to_owned(),
        |metadata| format!("owner {}, mode {:04o}", user(metadata.uid()), metadata.mode() & 0o7777),
    )
}

pub(crate) fn owners(path: &Path) -> String {
    let found = owner_and_mode(path);
    let (file_owner, folder_owner) = (owner(path), owner(folder(path)));
    if file_owner == folder_owner {
        return found;
    }
    format!("{found}; its folder belongs to {folder_owner}: can the candidates' user write the file?")
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn owner(path: &Path) -> String {
    fs::metadata(path).map_or_else(|_| "its owner".to_owned(), |metadata| user(metadata.uid()))
}

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
        for no_room in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_SHMSIZE, ffi::SQLITE_IOERR_WRITE] {
            assert!(matches!(told(no_room), Obstacle::Other(error) if error.is_passing()), "{no_room}");
        }
        assert!(matches!(told(ffi::SQLITE_IOERR_READ), Obstacle::Other(error) if !error.is_passing()));
    }
}
