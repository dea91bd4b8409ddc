//! Where a database file lies: whether it may lie there, and whether it still does.
//!
//! Nothing here opens the file. Closing any descriptor of it would drop the locks that SQLite holds on it in
//! this process (POSIX locks belong to the process, not to the descriptor).

use super::{FileSystem, OpenError, OpenOptions};
use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// An open database's files, told from any others that may come to have their paths: the file itself, its log
/// and the log's index. Without its index a log has a second one soon, and who uses that neither waits for
/// our locks nor sees what we write.
#[derive(Debug)]
pub(super) struct Place([Located; 3]);

#[derive(Debug)]
struct Located {
    path: PathBuf,
    identity: (u64, u64),
}

impl Place {
    /// Of a database that has been read: as long as it is open, SQLite keeps log and index where they are.
    ///
    /// `beside` is the path without symbolic links, where those two lie.
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
        // A path that can't be looked at says nothing: writing and reading will.
        fs::metadata(&self.path).map_or_else(
            |error| error.kind() != io::ErrorKind::NotFound,
            |metadata| identity(&metadata) == self.identity,
        )
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// The same place after a change of the working folder.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, OpenError> {
    if path.as_os_str().is_empty() {
        return Err(OpenError::NoPath);
    }
    std::path::absolute(path).map_err(|cause| OpenError::System { path: path.to_owned(), cause })
}

/// Refuses a place where a database could not be shared safely.
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

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The smallest page of a database, and so the smallest file. SQLite takes a shorter one for a database to
/// be.
const SMALLEST: u64 = 512;

fn check_file(path: &Path, metadata: &Metadata) -> Result<(), OpenError> {
    if !metadata.is_file() {
        return Err(OpenError::NotAFile(path.to_owned()));
    }
    if (1..SMALLEST).contains(&metadata.len()) {
        return Err(OpenError::NotADatabase(path.to_owned()));
    }
    // The log of a database lies beside it, under its name: whoever comes by another name has another log.
    let shared = |how| Err(OpenError::Shared { path: path.to_owned(), how });
    if metadata.nlink() > 1 {
        return shared("a file with several hard links");
    }
    if is_mount(path) {
        return shared("mounted as a single file");
    }
    Ok(())
}

/// As containers do it with `--volume file:file`.
#[cfg(target_os = "linux")]
fn is_mount(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    // Kernels before 5.8 don't tell.
    statx(CWD, path, AtFlags::empty(), StatxFlags::empty()).is_ok_and(|status| {
        status.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
            && status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    })
}

#[cfg(not(target_os = "linux"))]
fn is_mount(_path: &Path) -> bool {
    false
}
