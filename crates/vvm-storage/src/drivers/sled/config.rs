//! The folder of a database: created at the first opening, checked at each.

use crate::{opening::OpenError, sysvvm::Provenance};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// How long opening waits for the folder's lock, which a handle of this process may just be giving up.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) const POLL: Duration = Duration::from_millis(10);

/// Enough for some ten thousand slots; sled's default is 1 GB.
pub(super) const CACHE_BYTES: u64 = 16 << 20;

pub(crate) const DATA: &str = "db";

pub(super) const CONFIGURATION: &str = "conf";

/// The key of the format of the cells. Keys of the library begin with 1 to 5.
const FORMAT_KEY: &[u8] = b"\0vvm format";

/// A change that an older version would misread raises it.
const FORMAT: &[u8] = b"1";

pub(super) fn prepare(path: &Path) -> Result<(PathBuf, Provenance), OpenError> {
    match fs::create_dir(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = path.parent().unwrap_or(path).display();
            let why = format!("there is no folder {above}: create it (mkdir -p), or correct the path");
            return Err(OpenError::refused(why));
        }
        Err(cause) => return Err(of_system(path, &cause)),
    }
    let folder = path.canonicalize().map_err(|cause| of_system(path, &cause))?;
    if !folder.is_dir() {
        let why = format!("{} is not a folder: name the folder of the database", folder.display());
        return Err(OpenError::refused(why));
    }
    let is_empty = fs::read_dir(&folder).map_err(|cause| of_system(path, &cause))?.next().is_none();
    if !is_empty && !folder.join(CONFIGURATION).exists() && !folder.join(DATA).exists() {
        return Err(of_another_program(&folder));
    }
    Ok((folder, if is_empty { Provenance::Created } else { Provenance::Existing }))
}

/// Whether another process or handle has locked the data file. sled's error tells it only as text.
pub(super) fn is_held(folder: &Path) -> bool {
    let tried = File::open(folder.join(DATA)).map(|data| data.try_lock());
    matches!(tried, Ok(Err(fs::TryLockError::WouldBlock)))
}

pub(super) fn check_format(folder: &Path, cells: &sled::Db) -> Result<(), OpenError> {
    match cells.get(FORMAT_KEY).map_err(|cause| of_sled(folder, cause))? {
        Some(format) if *format == *FORMAT => Ok(()),
        Some(found) => Err(OpenError::refused(format!(
            "{} has format {}, and this version knows format {}: use the other version",
            folder.display(),
            String::from_utf8_lossy(&found),
            String::from_utf8_lossy(FORMAT)
        ))),
        // Every database has the default tree.
        None if cells.tree_names().len() > 1 || !cells.is_empty() => Err(of_another_program(folder)),
        None => cells.insert(FORMAT_KEY, FORMAT).map(drop).map_err(|cause| of_sled(folder, cause)),
    }
}

fn of_another_program(folder: &Path) -> OpenError {
    OpenError::refused(format!(
        "{} has files of another program: name a folder that is empty or does not exist",
        folder.display()
    ))
}

pub(super) fn of_system(path: &Path, cause: &io::Error) -> OpenError {
    OpenError::refused(format!("{} can't be opened: {cause}", path.display()))
}

pub(super) fn of_sled(folder: &Path, cause: sled::Error) -> OpenError {
    match cause {
        sled::Error::Io(cause) => of_system(folder, &cause),
        sled::Error::Corruption { .. } => {
            OpenError::refused(format!("{} is damaged: restore it from a backup ({cause})", folder.display()))
        }
        // Other settings, or another version of sled.
        sled::Error::Unsupported(_) => of_another_program(folder),
        cause => OpenError::refused(format!("{} can't be opened: {cause}", folder.display())),
    }
}
