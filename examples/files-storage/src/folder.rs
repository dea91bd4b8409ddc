//! The folder: one lock for all that processes do in it, and files that are replaced whole.

use crate::driver_error::DriverError;
use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use vvm_clock::SystemClock;
use vvm_storage::Partition;

/// A folder that exists.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

/// The same, while nobody else reads or writes in it.
pub(crate) struct Locked<'a> {
    folder: &'a Path,
    /// Closing it gives the lock back, also when the process dies: the kernel does that.
    _lock: File,
}

/// How often, and after how long, a lock that somebody else has is tried again: for a second in all. Nobody
/// waits for ever for a process that was stopped in between (I10).
const TRIES: u32 = 1_000;
const BETWEEN_TRIES: Duration = Duration::from_millis(1);

/// A file name has at most 255 bytes.
const BYTES_A_NAME: usize = 120;

impl Folder {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        match fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            // Whoever finds it there makes its name last, too: its creator may have died before it could.
            _ => {
                fs::read_dir(path)?;
                sync_folder(
                    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new(".")),
                )?;
                Ok(Self { path: path.to_owned() })
            }
        }
    }

    /// Waits for everybody else.
    pub(crate) fn lock(&self) -> Result<Locked<'_>, DriverError> {
        // Opened each time: a lock belongs to an open file, so that two calls of one process exclude each
        // other, too.
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
    /// What the file of a partition has, if there is one.
    pub(crate) fn content(&self, at: &Partition) -> Result<Option<Vec<u8>>, DriverError> {
        match fs::read(self.file(at)) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(DriverError::NotBegun(error)),
        }
    }

    /// Replaces the file whole; returns when a power cut can't undo it any more.
    pub(crate) fn replace(&self, at: &Partition, content: &[u8]) -> Result<(), DriverError> {
        let (file, fresh) = (self.file(at), self.folder.join("fresh"));
        // Nobody looks at this one: until the renaming nothing has happened.
        let written = fs::write(&fresh, content).and_then(|()| File::open(&fresh)?.sync_all());
        let written = written.and_then(|()| file.parent().map_or(Ok(()), fs::create_dir_all));
        written.map_err(DriverError::NotBegun)?;
        // From here on it may have happened, or may be undone by a power cut.
        fs::rename(&fresh, &file).and_then(|()| self.sync_to(&file)).map_err(DriverError::MaybeDone)
    }

    /// Makes the names on the way to `file` last.
    fn sync_to(&self, file: &Path) -> io::Result<()> {
        let mut folders = file.ancestors().skip(1).take_while(|folder| folder.starts_with(self.folder));
        folders.try_for_each(sync_folder)
    }

    /// Partitions have any bytes, also `/`, and more of them than a name may have: two digits for a byte, and
    /// folders in between. No folder meets a file: their names end differently.
    fn file(&self, at: &Partition) -> PathBuf {
        let mut file = self.folder.to_owned();
        let mut parts = at.as_bytes().chunks(BYTES_A_NAME).peekable();
        while let Some(part) = parts.next() {
            let digits: String = part.iter().map(|byte| format!("{byte:02x}")).collect();
            file.push(if parts.peek().is_some() { digits } else { digits + ".row" });
        }
        file
    }
}

/// Makes the names in a folder last.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
