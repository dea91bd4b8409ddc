//! From a folder to a database that is ready, and everything that opening refuses.

mod error;
mod lane;

pub use error::OpenError;
pub(super) use lane::Lane;

use super::{errors::DriverError, rows::Rows};
use crate::{Opened, Provenance};
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

/// How long opening waits for the lock: a handle of this process that is being closed lets go of it within
/// that.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often it looks whether the lock is free.
const POLL: Duration = Duration::from_millis(10);

/// Room for a few ten thousand slots; sled's own default is 1 GB.
const CACHE_BYTES: u64 = 16 << 20;

/// sled's data file; it is what sled locks.
const DATA: &str = "db";

/// sled's description of its folder.
const CONFIGURATION: &str = "conf";

/// Where the format of the rows stands, outside both trees.
const FORMAT_KEY: &[u8] = b"vvm format";

/// A change that an older version would misread raises it.
const FORMAT: &[u8] = b"1";

/// What this process has open: sled can't be opened twice, and several handles must share it.
static OPEN: Mutex<BTreeMap<PathBuf, Weak<Lane>>> = Mutex::const_new(BTreeMap::new());

/// An open database.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) rows: Rows,
    database: ::sled::Db,
    data: File,
}

impl Database {
    /// Puts all that was written on the disk.
    pub(super) fn sync(&self) -> Result<(), DriverError> {
        if self.database.flush()? > 0 {
            // On Linux sled writes by `sync_file_range`, which leaves the disk's own cache and the file's
            // length behind.
            self.data.sync_all().map_err(|error| DriverError::Disk(error.to_string()))?;
        }
        Ok(())
    }
}

/// A lane of its own or one that this process has already; one opening at a time.
pub(super) async fn open(path: &Path) -> Result<(Arc<Lane>, Opened), OpenError> {
    let mut open = OPEN.lock().await;
    let (folder, provenance) = prepare(path)?;
    let opened = Opened::at(folder.display().to_string(), provenance);
    open.retain(|_, lane| lane.strong_count() > 0);
    if let Some(lane) = open.get(&folder).and_then(Weak::upgrade) {
        return Ok((lane, opened));
    }
    let on_thread = folder.clone();
    let lane = Arc::new(Lane::start(move || open_folder(on_thread)).await?);
    open.insert(folder, Arc::downgrade(&lane));
    Ok((lane, opened))
}

/// The folder under its one true name, created on first use. Refuses folders that belong to something else.
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
    let give_up_at = SystemClock::read().after(PATIENCE);
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
    // The names of the files in the folder, and the name of the folder.
    for folder in [Some(folder.as_path()), folder.parent()].into_iter().flatten() {
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|cause| OpenError::System { path: folder.to_owned(), cause })?;
    }
    Ok(database)
}

/// Whether somebody has the data file locked. sled says so only in a sentence.
fn is_held(folder: &Path) -> bool {
    let tried = File::open(folder.join(DATA)).map(|data| data.try_lock());
    matches!(tried, Ok(Err(fs::TryLockError::WouldBlock)))
}

/// Whose database it is, and in which format; one that nobody has used is ours from now on.
fn check_format(folder: &Path, database: &::sled::Db) -> Result<(), OpenError> {
    let of_sled = |cause| OpenError::of_sled(folder.to_owned(), cause);
    match database.get(FORMAT_KEY).map_err(of_sled)? {
        Some(format) if *format == *FORMAT => Ok(()),
        Some(found) => Err(OpenError::OtherFormat {
            path: folder.to_owned(),
            found: String::from_utf8_lossy(&found).into_owned(),
        }),
        // Every database has a tree without a name.
        None if database.tree_names().len() > 1 || !database.is_empty() => {
            Err(OpenError::OfSomethingElse(folder.to_owned()))
        }
        None => database.insert(FORMAT_KEY, FORMAT).map(drop).map_err(of_sled),
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
    async fn what_is_in_the_way_is_said() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(matches!(refused(Path::new("")).await, OpenError::NoPath));
        assert!(
            matches!(refused(&at("missing/elections")).await, OpenError::NoParent(path) if path == at("missing"))
        );
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
        assert!(matches!(refused(&at("newer")).await, OpenError::OtherFormat { found, .. } if found == "2"));
    }

    #[tokio::test]
    async fn a_folder_that_somebody_else_has_is_refused_by_name() {
        let folder = TempDir::new().unwrap();
        // As another process would: by a lock that this process's handles don't share.
        let theirs = ::sled::open(folder.path()).unwrap();
        let error = refused(folder.path()).await;
        assert!(matches!(&error, OpenError::Held(_)), "{error}");
        assert!(error.to_string().contains("sqlite:"), "{error}");
        drop(theirs);
        assert!(SledStorage::open(folder.path()).await.is_ok());
    }

    #[tokio::test]
    async fn names_of_one_folder_lead_to_one_database() {
        let folder = TempDir::new().unwrap();
        std::os::unix::fs::symlink(folder.path().join("real"), folder.path().join("name")).unwrap();
        let _one = SledStorage::open(&folder.path().join("real")).await.unwrap();
        assert!(SledStorage::open(&folder.path().join("name")).await.is_ok());
    }
}
