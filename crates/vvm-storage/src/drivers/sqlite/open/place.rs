//! [`Place`]: whether a database file may lie where it does, and whether it still does.
//!
//! This code never opens the file. Closing any descriptor of it would drop the locks that SQLite holds in
//! this process: POSIX locks belong to the process, not to the descriptor.

use super::{FileSystem, OpenError, OpenOptions};
use rustix::fs::{Access, access};
use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The files of an open database, and their identities: the file, its log and the log's index. If the index
/// is deleted, the next process creates another one, and then neither respects the other's locks.
#[derive(Debug)]
pub(super) struct Place([Located; 3]);

#[derive(Debug)]
struct Located {
    path: PathBuf,
    identity: (u64, u64),
}

impl Place {
    /// Returns the place of a database that was read: while it is open, SQLite keeps log and index in place.
    ///
    /// `beside` is the path without symbolic links; log and index lie there.
    pub(super) fn of(path: PathBuf, beside: &Path) -> Result<Self, OpenError> {
        let companion = |suffix| {
            let mut name = beside.as_os_str().to_owned();
            name.push(suffix);
            Located::at(name.into())
        };
        Ok(Self([Located::at(path)?, companion("-wal")?, companion("-shm")?]))
    }

    pub(super) fn is_unchanged(&self) -> bool {
        self.0.iter().all(Located::is_unchanged)
    }
}

impl Located {
    fn at(path: PathBuf) -> Result<Self, OpenError> {
        match fs::metadata(&path) {
            Ok(metadata) => Ok(Self { identity: identity(&metadata), path }),
            Err(cause) => Err(OpenError::System { path, cause }),
        }
    }

    fn is_unchanged(&self) -> bool {
        // Other errors prove nothing. Reading or writing will report them.
        fs::metadata(&self.path).map_or_else(
            |error| error.kind() != io::ErrorKind::NotFound,
            |metadata| identity(&metadata) == self.identity,
        )
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Returns `path` in a form that a change of the working folder does not affect.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, OpenError> {
    if path.as_os_str().is_empty() {
        return Err(OpenError::NoPath);
    }
    std::path::absolute(path).map_err(|cause| OpenError::System { path: path.to_owned(), cause })
}

/// Fails if candidates could not share a database at `path`.
pub(super) fn check(
    path: &Path,
    options: OpenOptions,
    file_system_of: impl Fn(&Path) -> io::Result<FileSystem>,
) -> Result<(), OpenError> {
    let system = |path: &Path, cause| OpenError::System { path: path.to_owned(), cause };
    let Some(folder) = path.parent() else { return Err(OpenError::NotAFile(path.to_owned())) };
    match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Err(OpenError::NoFolder(folder.to_owned())),
        Err(error) if is_missing(&error) => return Err(OpenError::NoFolder(folder.to_owned())),
        Err(cause) => return Err(system(folder, cause)),
    }
    let there = match fs::metadata(path) {
        Ok(metadata) => {
            check_file(path, &metadata)?;
            path
        }
        Err(error) if is_missing(&error) => folder,
        Err(cause) => return Err(system(path, cause)),
    };
    let file_system = file_system_of(there).map_err(|cause| system(there, cause))?;
    if file_system.is_supported() {
        return Ok(());
    }
    if file_system.is_layered() {
        return if options.allows_overlay() { Ok(()) } else { Err(OpenError::Overlay(path.to_owned())) };
    }
    Err(OpenError::FileSystem {
        path: there.to_owned(),
        file_system: file_system.to_string(),
        supported: FileSystem::supported(),
    })
}

/// Fails if the file, its log or the log's index exists and can't be written by this user.
///
/// Checked before SQLite opens anything: a connection that can't write the file would still create a log and
/// an index, as files of this user. They would keep every other user from writing.
pub(super) fn check_writable(path: &Path) -> Result<(), OpenError> {
    let is_obstacle =
        |file: &PathBuf| file.exists() && access(file, Access::READ_OK | Access::WRITE_OK).is_err();
    let [log, index] = side_files(path);
    match [path.to_owned(), log, index].into_iter().find(is_obstacle) {
        Some(file) => Err(OpenError::ReadOnlyFile(file)),
        None => Ok(()),
    }
}

/// Fails unless log and index exist, so that reading creates neither.
///
/// SQLite deletes them when the last process closes the database. If that happens between this check and the
/// open, the reader still creates them; that takes microseconds.
pub(super) fn check_in_use(path: &Path) -> Result<(), OpenError> {
    let is_in_use = side_files(path).iter().all(|file| file.exists());
    if is_in_use { Ok(()) } else { Err(OpenError::OnlyWhileInUse(path.to_owned())) }
}

/// SQLite names log and index after the target of a symbolic link.
fn side_files(path: &Path) -> [PathBuf; 2] {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    ["-wal", "-shm"].map(|suffix| {
        let mut name = target.clone().into_os_string();
        name.push(suffix);
        name.into()
    })
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The smallest page of a database. SQLite treats a shorter file as an empty one.
const SMALLEST: u64 = 512;

fn check_file(path: &Path, metadata: &Metadata) -> Result<(), OpenError> {
    if !metadata.is_file() {
        return Err(OpenError::NotAFile(path.to_owned()));
    }
    if (1..SMALLEST).contains(&metadata.len()) {
        return Err(OpenError::NotADatabase(path.to_owned()));
    }
    // The log lies beside the file, under its name: another name has another log.
    let shared = |how| Err(OpenError::Shared { path: path.to_owned(), how });
    if metadata.nlink() > 1 {
        return shared("a file with several hard links");
    }
    if is_mount(path) {
        return shared("mounted as a single file");
    }
    Ok(())
}

/// Whether the file itself is a mount point (`--volume file:file`).
#[cfg(target_os = "linux")]
fn is_mount(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    // Unknown before Linux 5.8.
    statx(CWD, path, AtFlags::empty(), StatxFlags::empty()).is_ok_and(|status| {
        status.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
            && status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    })
}

#[cfg(not(target_os = "linux"))]
fn is_mount(_path: &Path) -> bool {
    false
}
