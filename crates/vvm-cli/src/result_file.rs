//! Writes the result file. A regular file is replaced as a whole; anything else is opened and written to.
//!
//! A rename would turn a FIFO or a device into a regular file, and a symlink into a copy. So the rename is
//! beside the target of a symlink, and only if that is a regular file or absent.

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

/// The most symlinks that the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Why the file can't be written.
#[derive(Debug, thiserror::Error)]
#[error("can't write {} ({cause}): {}", path.display(), cause.way_out())]
pub(crate) struct Unwritable {
    path: PathBuf,
    cause: Cause,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    /// The kind alone: the error itself names a temporary file.
    #[error("{}", in_words(*.0))]
    System(io::ErrorKind),
    #[error("no process reads it")]
    Unread,
    #[error("it is a block device or a socket")]
    NotForText,
    #[error("it belongs to the storage")]
    OfStorage,
}

/// Returns the words of the system, where those of the kind are only Rust's.
fn in_words(kind: io::ErrorKind) -> String {
    match kind {
        io::ErrorKind::NotFound => "no such file or directory".into(),
        io::ErrorKind::StorageFull => "no space left on the device".into(),
        kind => kind.to_string(),
    }
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
        // The FIFO has no reader (fifo(7)).
        if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) {
            return Self::Unread;
        }
        Self::System(error.kind())
    }
}

/// How a place is written to.
#[derive(PartialEq, Eq, Debug)]
enum Place {
    /// This regular file is created or replaced.
    Replaced(PathBuf),
    /// It is opened and written to.
    Opened,
}

/// Checks that `path` can be written and is no file of the storage. Opens only regular files: the reader of a
/// FIFO would see its end.
///
/// # Errors
/// [`Unwritable`].
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

/// Writes `text`. A regular file is written as a whole or not at all, unless its folder is not writable.
///
/// # Errors
/// [`Unwritable`].
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
        // A descriptor of this process (/dev/stdout): its file may have a reader, and no name.
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

/// Opens without waiting for the reader of a FIFO or for a stopped terminal.
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

/// Whether the folder is the cause, or the file is a mount point, as in a container.
fn is_for_its_folder(refusal: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(refusal.kind(), PermissionDenied | ReadOnlyFilesystem | ResourceBusy)
}

/// Creates a temporary file in the folder of `path`, with the permissions of a new file.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    // The umask of the process applies.
    let ordinary = Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(".vvm-result-").permissions(ordinary).tempfile_in(folder_of(path))
}

/// Whether both names are of one file. A file that does not exist is compared by folder and name.
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
