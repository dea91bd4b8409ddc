//! Looking at what a URL names: whether it is there, who can share it, and what is in it, without a right to
//! write.

use super::{OpenError, Place, open, parse};
use crate::SysVvmStorage;
use std::{fs, path::PathBuf, sync::Arc};
use vvm_clock::Clock;

/// As [`open`], for who only looks. Where this user may not write the database, it is opened to read alone,
/// if it can be: then every write fails with `Fatal`. (A file of SQLite can while somebody has it open; of
/// the others, rights are looked at when something is written.)
///
/// # Errors
/// As [`open`].
///
/// # Cancel safety
/// Dropped, it leaves nothing open.
pub async fn open_to_look(url: &str, clock: Arc<dyn Clock>) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    match parse(url)? {
        #[cfg(feature = "sqlite")]
        Place::Sqlite(file) => {
            let (path, options) = (file.path.as_ref(), file.options());
            Ok(Arc::new(crate::sqlite::SqliteStorage::open_to_look(path, options).await?))
        }
        _ => open(url, clock).await,
    }
}

/// Whether processes other than this one can share the storage that `url` names: what
/// [`SysVvmStorage::shared_between_processes`] says, without opening it or needing its driver.
///
/// # Errors
/// When the URL names no storage of any version.
pub fn shared_between_processes(url: &str) -> Result<bool, OpenError> {
    match parse(url)? {
        Place::Mem | Place::Sled(_) => Ok(false),
        Place::Sqlite(_) | Place::Scylla(_) | Place::Postgres(_) | Place::DynamoDb(_) => Ok(true),
    }
}

/// Whether the storage that `url` names is there already, so that opening it would create nothing. Memory
/// never is, and what opening doesn't create, a keyspace or a table of a cluster, always.
///
/// # Errors
/// When the URL names no storage of any version.
pub fn exists(url: &str) -> Result<bool, OpenError> {
    let found = match parse(url)? {
        Place::Mem => return Ok(false),
        Place::Scylla(_) | Place::Postgres(_) | Place::DynamoDb(_) => return Ok(true),
        Place::Sqlite(file) => std::fs::metadata(file.path),
        Place::Sled(path) => std::fs::metadata(path),
    };
    match found {
        // An empty file is one that would become a database when opened.
        Ok(metadata) => Ok(!metadata.is_file() || metadata.len() > 0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        // Opening will tell what is in the way, in its own words.
        Err(_) => Ok(true),
    }
}

/// The files of the storage that `url` names, as far as their names are known, whether they are there or not:
/// no other program may write to them. None of a storage that is not one of single files, nor of a URL that
/// names none.
pub fn files(url: &str) -> Vec<PathBuf> {
    let Ok(Place::Sqlite(file)) = parse(url) else { return Vec::new() };
    // SQLite names the others after the target of a symlink.
    let target = fs::canonicalize(file.path).unwrap_or_else(|_| file.path.into());
    let named = |ending: &str| {
        let mut name = target.clone().into_os_string();
        name.push(ending);
        PathBuf::from(name)
    };
    ["", "-wal", "-shm", "-journal"].map(named).into()
}

/// Refuses a place where opening would neither find nor create the storage that `url` names. Creates nothing,
/// and asks no server.
///
/// # Errors
/// As [`open`]: where the folder is missing, and where candidates may not share the file.
pub fn check_place(url: &str) -> Result<(), OpenError> {
    match parse(url)? {
        #[cfg(feature = "sqlite")]
        Place::Sqlite(file) => Ok(crate::sqlite::check_place(file.path.as_ref(), file.options())?),
        _ => Ok(()),
    }
}
