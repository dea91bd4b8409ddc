//! The storage that a URL names.
//!
//! | URL | storage |
//! |---|---|
//! | `mem:` | the memory of this process; empty at first, lost at its end |
//! | `sled:elections`, `sled:/var/lib/vvm/elections` | a folder that one process uses, created on first use |
//! | `sqlite:elections.db`, `sqlite:/var/lib/vvm/elections.db` | a file, created on first use |
//! | `scylla://host1,host2:9042/keyspace?datacenter=dc1` | a keyspace of ScyllaDB or Apache Cassandra: module `scylla` |
//! | `postgres://user@host1,host2:5432/database` | a schema in a database of PostgreSQL: module `postgres` |
//! | `etcd://host1,host2,host3:2379/elections` | keys below a prefix of an etcd cluster: module `etcd` |
//! | `k8s://namespace` | Leases in a namespace of Kubernetes: module `kubernetes` |
//! | `dynamodb://eu-west-1/elections` | a table of Amazon DynamoDB: module `dynamodb` |
//! | `s3://bucket/elections?region=eu-west-1`, `gs://bucket/elections`, `az://container/elections?account=payroll` | a bucket: module `objects` |
//!
//! After `sqlite:` and `sled:` comes a path; nothing in it is escaped, and it can't contain a `?`. An
//! absolute path may have two slashes in front (`sqlite:///var/lib/vvm/elections.db`). Options of `sqlite:`:
//!
//! | option | meaning |
//! |---|---|
//! | `allow=overlay` | accept a file on overlayfs |
//! | `mode=0660` | create the file for user and group; without it for the user alone (0600) |

mod available;
mod credentials;
mod error;
mod file;
mod looking;

pub use available::schemes;
pub use credentials::{credentials, has_password};
pub use error::OpenError;
pub use looking::{check_place, exists, file_and_owner, files, open_to_look, shared_between_processes};

use crate::{SysVvmStorage, storage_url};
use file::{File, without_slashes};
use std::sync::Arc;
use vvm_clock::Clock;

/// The place that a URL names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place<'url> {
    Mem,
    Sqlite(File<'url>),
    Sled(&'url str),
    /// The whole URL.
    Scylla(&'url str),
    /// The whole URL.
    Postgres(&'url str),
    /// The whole URL.
    Etcd(&'url str),
    /// The whole URL.
    Kubernetes(&'url str),
    /// The whole URL.
    DynamoDb(&'url str),
    /// The whole URL.
    Objects(&'url str),
}

impl Place<'_> {
    #[allow(dead_code, reason = "used by a build that leaves a driver out")]
    fn not_in_this_build(self) -> OpenError {
        let scheme = match self {
            Self::Mem => "mem",
            Self::Sqlite(_) => "sqlite",
            Self::Sled(_) => "sled",
            Self::Scylla(_) => "scylla",
            Self::Postgres(_) => "postgres",
            Self::Etcd(_) => "etcd",
            Self::Kubernetes(_) => "k8s",
            Self::DynamoDb(_) => "dynamodb",
            Self::Objects(url) if url.starts_with("gs:") => "gs",
            Self::Objects(url) if url.starts_with("az:") => "az",
            Self::Objects(_) => "s3",
        };
        let feature = match self {
            Self::Kubernetes(_) => "kubernetes",
            Self::Objects(_) => "object-store",
            _ => scheme,
        };
        OpenError::NotInThisBuild { scheme, feature }
    }
}

/// Opens the storage that `url` names. `mem:` counts ages on `clock`.
///
/// # Errors
/// If the URL names no storage of this build, or the storage can't be opened. The message says what to do.
///
/// # Cancel safety
/// Dropped, it leaves nothing open.
pub async fn open(url: &str, clock: Arc<dyn Clock>) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    #[cfg(not(any(feature = "kubernetes", feature = "mem", feature = "object-store")))]
    drop(clock);
    match parse(url)? {
        #[cfg(feature = "mem")]
        Place::Mem => Ok(crate::mem::MemDatabase::new(clock).open()),
        #[cfg(feature = "sqlite")]
        Place::Sqlite(file) => {
            Ok(Arc::new(crate::sqlite::SqliteStorage::open(file.path.as_ref(), file.options()).await?))
        }
        #[cfg(feature = "sled")]
        Place::Sled(path) => Ok(Arc::new(crate::sled::SledStorage::open(path.as_ref()).await?)),
        #[cfg(feature = "scylla")]
        Place::Scylla(url) => Ok(Arc::new(crate::scylla::ScyllaStorage::open(url).await?)),
        #[cfg(feature = "postgres")]
        Place::Postgres(url) => Ok(Arc::new(crate::postgres::PostgresStorage::open(url).await?)),
        #[cfg(feature = "etcd")]
        Place::Etcd(url) => Ok(Arc::new(crate::etcd::EtcdStorage::open(url).await?)),
        #[cfg(feature = "kubernetes")]
        Place::Kubernetes(url) => {
            let leases = crate::kubernetes::LeaseStorage::open(url).await?;
            Ok(Arc::new(crate::cells::Cells::new(leases, clock)))
        }
        #[cfg(feature = "dynamodb")]
        Place::DynamoDb(url) => Ok(Arc::new(crate::dynamodb::DynamoDbStorage::open(url).await?)),
        #[cfg(feature = "object-store")]
        Place::Objects(url) => {
            let cells = crate::objects::ObjectCells::open(url, Arc::clone(&clock)).await?;
            Ok(Arc::new(crate::cells::Cells::new(cells, clock)))
        }
        #[allow(unreachable_patterns, reason = "reached in a build that leaves a driver out")]
        place => Err(place.not_in_this_build()),
    }
}

/// Creates the storage that `url` names, as far as it is missing. May be run again, and by several processes
/// at once: what exists is checked and left unchanged.
///
/// # Errors
/// If the URL names no storage of this build, if the storage refuses, or if it was created with other
/// settings.
///
/// # Cancel safety
/// Dropped, it leaves what it has created so far. Running it again creates the rest.
pub async fn init_storage(url: &str) -> Result<(), OpenError> {
    match parse(url)? {
        #[cfg(feature = "mem")]
        Place::Mem => Ok(()),
        // Opening creates it.
        #[cfg(feature = "sqlite")]
        Place::Sqlite(file) => {
            crate::sqlite::SqliteStorage::open(file.path.as_ref(), file.options()).await?.close().await;
            Ok(())
        }
        #[cfg(feature = "sled")]
        Place::Sled(path) => {
            crate::sled::SledStorage::open(path.as_ref()).await?.close().await;
            Ok(())
        }
        #[cfg(feature = "scylla")]
        Place::Scylla(url) => Ok(crate::scylla::init(url).await?),
        #[cfg(feature = "postgres")]
        Place::Postgres(url) => Ok(crate::postgres::init(url).await?),
        #[cfg(feature = "etcd")]
        Place::Etcd(url) => Ok(crate::etcd::init(url).await?),
        #[cfg(feature = "kubernetes")]
        Place::Kubernetes(url) => Ok(crate::kubernetes::init(url).await?),
        #[cfg(feature = "dynamodb")]
        Place::DynamoDb(url) => Ok(crate::dynamodb::init(url).await?),
        #[cfg(feature = "object-store")]
        Place::Objects(url) => Ok(crate::objects::init(url).await?),
        #[allow(unreachable_patterns, reason = "reached in a build that leaves a driver out")]
        place => Err(place.not_in_this_build()),
    }
}

fn parse(url: &str) -> Result<Place<'_>, OpenError> {
    let malformed = |why: &str| Err(OpenError::Malformed { url: url.into(), why: why.to_owned() });
    let Some((scheme, place)) = storage_url::split(url) else {
        return Err(OpenError::NoScheme { url: url.into() });
    };
    match scheme {
        "mem" if place.is_empty() => Ok(Place::Mem),
        "mem" => malformed("memory has no name: write `mem:`"),
        "sqlite" => File::parse(place).map(Place::Sqlite).or_else(|why| malformed(&why)),
        "sled" => match without_slashes(place) {
            None => malformed("a path has no host: write `sled:elections` or `sled:/var/lib/elections`"),
            Some("") => malformed("the path is missing: write `sled:elections`"),
            Some(path) if path.contains('?') => malformed("it takes no options, and no `?` in the path"),
            Some(path) => Ok(Place::Sled(path)),
        },
        "scylla" => Ok(Place::Scylla(url)),
        "postgres" | "postgresql" => Ok(Place::Postgres(url)),
        "etcd" => Ok(Place::Etcd(url)),
        "k8s" => Ok(Place::Kubernetes(url)),
        "dynamodb" => Ok(Place::DynamoDb(url)),
        "s3" | "gs" | "az" => Ok(Place::Objects(url)),
        _ => Err(OpenError::UnknownScheme { scheme: scheme.to_owned() }),
    }
}

#[cfg(test)]
mod tests;
