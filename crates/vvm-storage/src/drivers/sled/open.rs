//! Opens a database folder, and refuses folders of other programs and processes.

use super::{
    Queue,
    rows::{DriverError, Rows},
};
use crate::sysvvm::{Opened, Provenance};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};
use tokio::sync::Mutex;
use vvm_clock::SystemClock;

/// How long opening waits for the folder's lock, which a handle of this process may just be giving up.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval at which the lock is tried.
const POLL: Duration = Duration::from_millis(10);

/// Enough for some ten thousand slots; sled's default is 1 GB.
const CACHE_BYTES: u64 = 16 << 20;

/// sled's data file, which sled locks.
const DATA: &str = "db";

/// sled's configuration file.
const CONFIGURATION: &str = "conf";

/// The key of the format of the rows, in the default tree.
const FORMAT_KEY: &[u8] = b"vvm format";

/// The format of the rows. A change that an older version would misread raises it.
const FORMAT: &[u8] = b"1";

/// The open databases of this process: sled can't open a folder twice, so handles share a queue.
static OPEN: Mutex<BTreeMap<PathBuf, Weak<Queue>>> = Mutex::const_new(BTreeMap::new());

/// An open database.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) rows: Rows,
    database: ::sled::Db,
    data: File,
}

impl Database {
    /// Writes all changes to the disk.
    pub(super) fn sync(&self) -> Result<(), DriverError> {
        if self.database.flush()? > 0 {
            // sled's `sync_file_range` on Linux syncs neither the disk's cache nor the file's length.
            self.data.sync_all().map_err(|error| DriverError::Disk(error.to_string()))?;
        }
        Ok(())
    }
}

/// Opens the folder at `path`, or returns the queue by which this process has it open.
pub(super) async fn open(path: &Path) -> Result<(Arc<Queue>, Opened), OpenError> {
    let mut open = OPEN.lock().await;
    let (folder, provenance) = prepare(path)?;
    let opened = Opened::at(folder.display().to_string(), provenance);
    open.retain(|_, queue| queue.strong_count() > 0);
    if let Some(queue) = open.get(&folder).and_then(Weak::upgrade) {
        return Ok((queue, opened));
    }
    let on_thread = folder.clone();
    let queue = Arc::new(Queue::start(move || open_folder(on_thread)).await?);
    open.insert(folder, Arc::downgrade(&queue));
    Ok((queue, opened))
}

/// Creates the folder if it is missing, and returns its canonical path. Refuses a folder with other files.
fn prepare(path: &Path) -> Result<(PathBuf, Provenance), OpenError> {
    if path.as_os_str().is_empty() {
        return Err(OpenError::NoPath);
    }
    let system = |cause| OpenError::System { path: path.to_owned(), cause };
    match fs::create_dir(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(OpenError::NoParent(path.parent().unwrap_or(path).to_owned()));
        }
        Err(cause) => return Err(system(cause)),
    }
    let folder = path.canonicalize().map_err(system)?;
    if !folder.is_dir() {
        return Err(OpenError::NotAFolder(folder));
    }
    let is_empty = fs::read_dir(&folder).map_err(system)?.next().is_none();
    if !is_empty && !folder.join(CONFIGURATION).exists() && !folder.join(DATA).exists() {
        return Err(OpenError::OfSomethingElse(folder));
    }
    Ok((folder, if is_empty { Provenance::Created } else { Provenance::Existing }))
}

fn open_folder(folder: PathBuf) -> Result<Database, OpenError> {
    let give_up_at = SystemClock::read().after(LOCK_TIMEOUT);
    let configuration = ::sled::Config::new().path(&folder).cache_capacity(CACHE_BYTES).flush_every_ms(None);
    let database = loop {
        match configuration.open() {
            Ok(database) => break database,
            Err(_) if is_held(&folder) => {
                if SystemClock::read() >= give_up_at {
                    return Err(OpenError::Held(folder));
                }
                thread::park_timeout(POLL);
            }
            Err(cause) => return Err(OpenError::of_sled(folder, cause)),
        }
    };
    let of_sled = |cause| OpenError::of_sled(folder.clone(), cause);
    check_format(&folder, &database)?;
    let rows = Rows::of(&database).map_err(of_sled)?;
    let data = File::open(folder.join(DATA))
        .map_err(|cause| OpenError::System { path: folder.join(DATA), cause })?;
    let database = Database { rows, database, data };
    database.sync().map_err(|error| OpenError::Sync { path: folder.clone(), cause: error.to_string() })?;
    // Sync the entries of the folder, and its own entry in the folder above.
    for folder in [Some(folder.as_path()), folder.parent()].into_iter().flatten() {
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|cause| OpenError::System { path: folder.to_owned(), cause })?;
    }
    Ok(database)
}

/// Whether another process or handle has locked the data file. sled's error tells it only as text.
fn is_held(folder: &Path) -> bool {
    let tried = File::open(folder.join(DATA)).map(|data| data.try_lock());
    matches!(tried, Ok(Err(fs::TryLockError::WouldBlock)))
}

/// Checks the format, and writes it into a new database.
fn check_format(folder: &Path, database: &::sled::Db) -> Result<(), OpenError> {
    let of_sled = |cause| OpenError::of_sled(folder.to_owned(), cause);
    match database.get(FORMAT_KEY).map_err(of_sled)? {
        Some(format) if *format == *FORMAT => Ok(()),
        Some(found) => Err(OpenError::OtherFormat {
            path: folder.to_owned(),
            found: String::from_utf8_lossy(&found).into_owned(),
            known: String::from_utf8_lossy(FORMAT).into_owned(),
        }),
        // Every database has the default tree.
        None if database.tree_names().len() > 1 || !database.is_empty() => {
            Err(OpenError::OfSomethingElse(folder.to_owned()))
        }
        None => database.insert(FORMAT_KEY, FORMAT).map(drop).map_err(of_sled),
    }
}

/// Why a database folder could not be opened. Existing files were not changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path is empty.
    #[error("no path to a database folder")]
    NoPath,
    /// The folder above is missing. It is not created, since the path may be wrong.
    #[error("there is no folder {}: create it (mkdir -p), or correct the path", .0.display())]
    NoParent(PathBuf),
    /// The path leads to something else than a folder.
    #[error("{} is not a folder: name the folder of the database", .0.display())]
    NotAFolder(PathBuf),
    /// The folder is used by another program, or is a sled database of one.
    #[error("{} has files of another program: name a folder that is empty or does not exist", .0.display())]
    OfSomethingElse(PathBuf),
    /// Another version of this driver created it.
    #[error("{} has format {found}, and this version knows format {known}: use the other \
        version", .path.display())]
    OtherFormat {
        /// The folder.
        path: PathBuf,
        /// Its format.
        found: String,
        /// The format that this driver knows.
        known: String,
    },
    /// Another process uses it.
    #[error(
        "another process uses {}, and only one at a time can: end it, or let them share a file \
         (`sqlite:elections.db`)", .0.display()
    )]
    Held(PathBuf),
    /// The database is damaged.
    #[error("{} is damaged: restore it from a backup ({cause})", .path.display())]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// The error of sled.
        cause: ::sled::Error,
    },
    /// The system refused access.
    #[error("{} can't be opened: {cause}", .path.display())]
    System {
        /// The folder, or a file in it.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// The changes of opening could not be synced.
    #[error("{} can't be opened: {cause}", .path.display())]
    Sync {
        /// The folder.
        path: PathBuf,
        /// The error.
        cause: String,
    },
    /// Any other error of sled.
    #[error("{} can't be opened: {cause}", .path.display())]
    Sled {
        /// The folder.
        path: PathBuf,
        /// The error of sled.
        cause: ::sled::Error,
    },
    /// The process is out of threads.
    #[error("the system refuses a thread for the database: {0}: allow more (ulimit -u, TasksMax=, pids.max)")]
    Thread(#[source] io::Error),
    /// The thread panicked while it opened the database.
    #[error("the thread that opened the database panicked")]
    ThreadEnded,
}

impl OpenError {
    pub(super) fn of_sled(path: PathBuf, cause: ::sled::Error) -> Self {
        match cause {
            ::sled::Error::Io(cause) => Self::System { path, cause },
            cause @ ::sled::Error::Corruption { .. } => Self::Damaged { path, cause },
            cause => Self::Sled { path, cause },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sled::SledStorage;
    use tempfile::TempDir;

    async fn refused(path: &Path) -> OpenError {
        SledStorage::open(path).await.expect_err("opened")
    }

    #[tokio::test]
    async fn each_obstacle_is_named() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(matches!(refused(Path::new("")).await, OpenError::NoPath));
        assert!(matches!(
            refused(&at("missing/elections")).await,
            OpenError::NoParent(path) if path == at("missing")
        ));
        fs::write(at("file"), "text").unwrap();
        assert!(matches!(refused(&at("file")).await, OpenError::NotAFolder(_)));
        assert!(matches!(refused(folder.path()).await, OpenError::OfSomethingElse(_)));
        assert!(!at(DATA).exists(), "a folder of something else was changed");

        let theirs = ::sled::open(at("theirs")).unwrap();
        theirs.insert("a", "b").unwrap();
        drop(theirs);
        assert!(matches!(refused(&at("theirs")).await, OpenError::OfSomethingElse(_)));

        let newer = ::sled::open(at("newer")).unwrap();
        newer.insert(FORMAT_KEY, "2").unwrap();
        drop(newer);
        let refusal = refused(&at("newer")).await.to_string();
        assert!(refusal.contains("has format 2, and this version knows format 1"), "{refusal}");
    }

    #[tokio::test]
    async fn folder_of_another_process_is_refused_by_name() {
        let folder = TempDir::new().unwrap();
        // sled's own lock stands for another process: the handles of this driver do not share it.
        let theirs = ::sled::open(folder.path()).unwrap();
        let error = refused(folder.path()).await;
        assert!(matches!(&error, OpenError::Held(_)), "{error}");
        assert!(error.to_string().contains("sqlite:"), "{error}");
        drop(theirs);
        assert!(SledStorage::open(folder.path()).await.is_ok());
    }

    #[tokio::test]
    async fn two_names_of_one_folder_open_one_database() {
        let folder = TempDir::new().unwrap();
        std::os::unix::fs::symlink(folder.path().join("real"), folder.path().join("name")).unwrap();
        let _one = SledStorage::open(&folder.path().join("real")).await.unwrap();
        assert!(SledStorage::open(&folder.path().join("name")).await.is_ok());
    }
}
