//! The folder: one lock for all processes, one file per cell.

use crate::DriverError;
use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use vvm_clock::SystemClock;
use vvm_storage::Partition;

#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

/// The folder while no other process reads or writes in it.
pub(crate) struct Locked<'a> {
    folder: &'a Path,
    /// The kernel releases the lock when the file is closed, also if the process dies.
    _lock: File,
}

/// A busy lock is tried again for a second. A process that was stopped with the lock must not hang others (I10).
const TRIES: u32 = 1_000;
const BETWEEN_TRIES: Duration = Duration::from_millis(1);

/// A file name has at most 255 bytes.
const NAME_BYTES: usize = 240;

impl Folder {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        match fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            // An existing folder is synced, too: its creator may have died before it did so.
            _ => {
                fs::read_dir(path)?;
                let parent = path.parent().filter(|parent| *parent != Path::new(""));
                sync_folder(parent.unwrap_or(Path::new(".")))?;
                Ok(Self { path: path.to_owned() })
            }
        }
    }

    /// Waits until no other call has the lock, in this process or another.
    pub(crate) fn lock(&self) -> Result<Locked<'_>, DriverError> {
        // Opened each time: a lock belongs to an open file, so two calls of one process exclude each other.
        let lock = File::options().create(true).append(true).open(self.path.join("lock"));
        let lock = lock.map_err(DriverError::NotBegun)?;
        for _ in 0..TRIES {
            match lock.try_lock() {
                Ok(()) => return Ok(Locked { folder: &self.path, _lock: lock }),
                Err(TryLockError::WouldBlock) => SystemClock::block_for(BETWEEN_TRIES),
                Err(TryLockError::Error(error)) => return Err(DriverError::NotBegun(error)),
            }
        }
        Err(DriverError::Busy)
    }
}

impl Locked<'_> {
    /// Returns the content of a cell's file, if there is one. A power cut can't undo it: its writer may have
    /// died between the rename and the sync.
    pub(crate) fn content(&self, at: &Partition) -> Result<Option<Vec<u8>>, DriverError> {
        let file = self.file(at);
        match fs::read(&file).and_then(|content| self.sync_to(&file).map(|()| content)) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(DriverError::NotBegun(error)),
        }
    }

    /// Replaces the file whole. Returns when a power cut can't undo it.
    pub(crate) fn replace(&self, at: &Partition, content: &[u8]) -> Result<(), DriverError> {
        let (file, fresh) = (self.file(at), self.folder.join("fresh"));
        // No reader opens this file: until the rename nothing has happened.
        let written = fs::write(&fresh, content).and_then(|()| File::open(&fresh)?.sync_all());
        let written = written.and_then(|()| file.parent().map_or(Ok(()), fs::create_dir_all));
        written.map_err(DriverError::NotBegun)?;
        // From here on it may have happened, or a power cut may undo it.
        fs::rename(&fresh, &file).and_then(|()| self.sync_to(&file)).map_err(DriverError::MaybeDone)
    }

    /// Syncs the folders on the way to `file`.
    fn sync_to(&self, file: &Path) -> io::Result<()> {
        let mut folders = file.ancestors().skip(1).take_while(|folder| folder.starts_with(self.folder));
        folders.try_for_each(sync_folder)
    }

    /// Returns the file of a cell. A long key has folders in between; files end with `.cell`, folders don't.
    fn file(&self, at: &Partition) -> PathBuf {
        let mut rest = &at.encoded()[..];
        let mut file = self.folder.to_owned();
        while let Some((folder, after)) =
            rest.split_at_checked(NAME_BYTES).filter(|(_, after)| !after.is_empty())
        {
            file.push(folder);
            rest = after;
        }
        file.push(format!("{rest}.cell"));
        file
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
