//! The place of the result file: a regular file is replaced whole, anything else is opened and written to.
//!
//! A rename would turn a FIFO or a device into a regular file, and a symlink into a copy. So it happens
//! beside the target of a symlink, and only where that target is a regular file or absent.

use rustix::{
    fs::{Access, AtFlags, CWD, OFlags, PROC_SUPER_MAGIC, accessat, statfs},
    io::Errno,
};
use std::{
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};
use tempfile::NamedTempFile;

/// As many symlinks as the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Why nothing can be written there.
#[derive(Debug, thiserror::Error)]
#[error("can't write {} ({cause}): {}", path.display(), cause.way_out())]
pub(crate) struct Unwritable {
    path: PathBuf,
    cause: Cause,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    /// The kind alone: the error itself names the file that was tried, which the operator did not name.
    #[error("{0}")]
    System(io::ErrorKind),
    #[error("no process reads it")]
    Unread,
    #[error("it is a block device or a socket")]
    NotForText,
    #[error("it belongs to the storage")]
    OfStorage,
}

impl Cause {
    fn way_out(&self) -> &'static str {
        match self {
            Self::System(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                "make room on its disk"
            }
            Self::System(io::ErrorKind::PermissionDenied) => "let this user write to its folder",
            Self::System(io::ErrorKind::ReadOnlyFilesystem) => {
                "name a file on a disk that is mounted to be written"
            }
            Self::System(_) => "name a file, in a folder that exists and that this user may write to",
            Self::Unread => "start its reader before vvm ends",
            Self::NotForText => "name a file, a FIFO or a terminal",
            Self::OfStorage => "name another file",
        }
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        // Of a FIFO that was opened without waiting (fifo(7)).
        if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) {
            return Self::Unread;
        }
        Self::System(error.kind())
    }
}

/// What becomes of what is there.
#[derive(PartialEq, Eq, Debug)]
enum Place {
    /// This regular file, or none yet, is replaced.
    Replaced(PathBuf),
    /// It is opened and written to.
    Opened,
}

/// Finds out early whether a result will have a place, and that the place is none of the storage's. Opens
/// nothing that is not a regular file: the reader of a FIFO would see it end.
///
/// # Errors
/// When it won't.
pub(crate) fn check(path: &Path, of_storage: &[PathBuf]) -> Result<(), Unwritable> {
    let checked = || -> Result<(), Cause> {
        match place(path)? {
            Place::Opened => Ok(may_write(path)?),
            Place::Replaced(target) => {
                if of_storage.iter().any(|file| is_same(&target, file)) {
                    return Err(Cause::OfStorage);
                }
                match beside(&target) {
                    Err(refusal) if is_for_its_folder(&refusal) && target.exists() => Ok(may_write(&target)?),
                    outcome => Ok(outcome.map(drop)?),
                }
            }
        }
    };
    checked().map_err(|cause| Unwritable { path: path.into(), cause })
}

/// Writes `text`: to a regular file whole or not at all, so that a reader never finds half of one, unless
/// only the file itself may be written and not its folder.
///
/// # Errors
/// When the place is gone or full, refuses, or has no reader.
pub(crate) fn write(path: &Path, text: &[u8]) -> Result<(), Unwritable> {
    let written = || -> Result<(), Cause> {
        match place(path)? {
            Place::Opened => Ok(open(path)?.write_all(text)?),
            Place::Replaced(target) => match replace(&target, text) {
                Err(refusal) if is_for_its_folder(&refusal) && target.exists() => {
                    let mut file = OpenOptions::new().write(true).truncate(true).open(&target)?;
                    file.write_all(text)?;
                    Ok(file.sync_all()?)
                }
                outcome => Ok(outcome?),
            },
        }
    };
    written().map_err(|cause| Unwritable { path: path.into(), cause })
}

fn place(path: &Path) -> Result<Place, Cause> {
    let mut target = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let found = match fs::symlink_metadata(&target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Place::Replaced(target)),
            found => found?,
        };
        if !found.is_symlink() {
            return of_file(&found, target);
        }
        // A descriptor of this process (/dev/stdout): what it is open on has a reader and perhaps no name.
        if statfs(folder_of(&target)).map_err(io::Error::from)?.f_type == PROC_SUPER_MAGIC {
            let opened = of_file(&fs::metadata(&target)?, target)?;
            return Ok(match opened {
                Place::Replaced(_) | Place::Opened => Place::Opened,
            });
        }
        target = folder_of(&target).join(fs::read_link(&target)?);
    }
    Err(io::Error::from(Errno::LOOP).into())
}

fn of_file(found: &Metadata, target: PathBuf) -> Result<Place, Cause> {
    let kind = found.file_type();
    if kind.is_dir() {
        return Err(Cause::System(io::ErrorKind::IsADirectory));
    }
    if kind.is_block_device() || kind.is_socket() {
        return Err(Cause::NotForText);
    }
    Ok(if kind.is_file() { Place::Replaced(target) } else { Place::Opened })
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn may_write(path: &Path) -> io::Result<()> {
    Ok(accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?)
}

/// Never waits: not for the reader of a FIFO, nor for a terminal that is stopped.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new().append(true).custom_flags(flags.bits().cast_signed()).open(path)
}

fn replace(target: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = beside(target)?;
    file.write_all(text)?;
    file.as_file().sync_all()?;
    file.persist(target)?;
    Ok(())
}

/// Whether the folder is to blame, or that the file is a mount point, as in a container.
fn is_for_its_folder(refusal: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(refusal.kind(), PermissionDenied | ReadOnlyFilesystem | ResourceBusy)
}

/// A nameless place on the file system of `path`, with the permissions of an ordinary new file.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    // The process's umask takes its part from this.
    let ordinary = Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(".vvm-result-").permissions(ordinary).tempfile_in(folder_of(path))
}

/// Whether both are one file, under whatever names. One that is not there yet is known by its folder and
/// name.
fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => {
            let named =
                |path: &Path| Some((fs::canonicalize(folder_of(path)).ok()?, path.file_name()?.to_owned()));
            named(one).is_some_and(|one| Some(one) == named(other))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
