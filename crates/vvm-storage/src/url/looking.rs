//! Questions about the storage that a URL names, which create nothing and need no right to write.

use super::{OpenError, Place, open, parse};
use crate::SysVvmStorage;
use std::{fs, path::PathBuf, sync::Arc};
use vvm_clock::Clock;

/// Opens the storage as [`open`] does; read-only if this user may not write the database. Then every write
/// fails with `Fatal`. An SQLite file can be opened read-only while a candidate has it open. The other
/// databases check rights when they are written.
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
        #[cfg(feature = "object-store")]
        Place::Objects(url) => {
            let cells = crate::objects::ObjectCells::open_to_look(url, Arc::clone(&clock)).await?;
            Ok(Arc::new(crate::cells::Cells::to_look(cells, clock)))
        }
        #[cfg(feature = "kubernetes")]
        Place::Kubernetes(url) => {
            let leases = crate::kubernetes::LeaseStorage::open(url).await?;
            Ok(Arc::new(crate::cells::Cells::to_look(leases, clock)))
        }
        _ => open(url, clock).await,
    }
}

/// Whether other processes can share the storage that `url` names. Unlike
/// [`SysVvmStorage::shared_between_processes`] it needs neither an open storage nor the driver.
///
/// # Errors
/// If the URL is malformed.
pub fn shared_between_processes(url: &str) -> Result<bool, OpenError> {
    match parse(url)? {
        Place::Mem | Place::Sled(_) => Ok(false),
        Place::Sqlite(_)
        | Place::Scylla(_)
        | Place::Postgres(_)
        | Place::Etcd(_)
        | Place::Kubernetes(_)
        | Place::DynamoDb(_)
        | Place::Objects(_) => Ok(true),
    }
}

/// Whether the storage that `url` names exists, so that opening it creates nothing. Always `false` for
/// memory, and always `true` for a server: opening creates no keyspace and no table.
///
/// # Errors
/// If the URL is malformed.
pub fn exists(url: &str) -> Result<bool, OpenError> {
    let found = match parse(url)? {
        Place::Mem => return Ok(false),
        Place::Scylla(_)
        | Place::Postgres(_)
        | Place::Etcd(_)
        | Place::Kubernetes(_)
        | Place::DynamoDb(_)
        | Place::Objects(_) => {
            return Ok(true);
        }
        Place::Sqlite(file) => std::fs::metadata(file.path),
        Place::Sled(path) => std::fs::metadata(path),
    };
    match found {
        // Opening makes an empty file a database.
        Ok(metadata) => Ok(!metadata.is_file() || metadata.len() > 0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        // Opening reports the obstacle.
        Err(_) => Ok(true),
    }
}

/// Returns the files of the storage that `url` names, whether they exist or not: no other program may write
/// to them. Empty for a storage that is not a file, and for a malformed URL.
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

/// Returns path, owner and mode of the SQLite file that `url` names. `None` for any other storage.
pub fn file_and_owner(url: &str) -> Option<String> {
    match parse(url).ok()? {
        #[cfg(feature = "sqlite")]
        Place::Sqlite(file) => Some(format!("{}, {}", file.path, crate::sqlite::owners(file.path.as_ref()))),
        _ => None,
    }
}

/// Checks that opening could find or create the storage that `url` names. Creates nothing, and contacts no
/// server.
///
/// # Errors
/// As [`open`], if the folder is missing or candidates may not share the file.
pub fn check_place(url: &str) -> Result<(), OpenError> {
    match parse(url)? {
        #[cfg(feature = "sqlite")]
        Place::Sqlite(file) => Ok(crate::sqlite::check_place(file.path.as_ref(), file.options())?),
        _ => Ok(()),
    }
}
