//! Which storage, told in one line: `scheme:place`.
//!
//! | URL | storage |
//! |---|---|
//! | `mem:` | this process's memory, empty at first, gone at its end |
//! | `sled:elections`, `sled:/var/lib/vvm/elections` | a folder that one process has, created on first use |
//! | `sqlite:elections.db`, `sqlite:/var/lib/vvm/elections.db` | a file, created on first use |
//! | `scylla://host1,host2:9042/keyspace?datacenter=dc1` | a keyspace of ScyllaDB or Apache Cassandra; see module `scylla` |
//! | `postgres://user@host1,host2:5432/database` | a schema in a database of PostgreSQL; see module `postgres` |
//! | `dynamodb://eu-west-1/elections` | a table of Amazon's DynamoDB; see module `dynamodb` |
//!
//! What follows `sqlite:` and `sled:` is a path as the system takes it, with nothing to escape. It can't
//! contain a `?`, which begins the options. `sqlite:` has one: `?allow=overlay` accepts a file on overlayfs.

mod credentials;
mod file;
mod looking;

pub use credentials::credentials;
pub use looking::{check_place, exists, files, open_to_look, shared_between_processes};

use crate::SysVvmStorage;
use file::File;
use std::sync::Arc;
use vvm_clock::Clock;

/// Every scheme that there is a driver for, in this build or another.
const SCHEMES: &str = "mem:, sqlite:PATH, sled:PATH, postgres://USER@HOST/DATABASE, scylla://HOST/KEYSPACE, \
    dynamodb://REGION/TABLE";

/// Why a storage could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no scheme.
    #[error(
        "`{url}` does not say which storage it is: write one of {SCHEMES} (a file would be `sqlite:{url}`)"
    )]
    NoScheme {
        /// What was asked for.
        url: String,
    },
    /// No driver has this scheme.
    #[error("there is no storage `{scheme}:`; there are {SCHEMES}")]
    UnknownScheme {
        /// What was asked for.
        scheme: String,
    },
    /// This build leaves the driver out.
    #[error("this build has no driver for `{scheme}:`: build vvm-storage with its feature `{scheme}`")]
    NotInThisBuild {
        /// What was asked for, and the feature that would turn it on.
        scheme: &'static str,
    },
    /// The scheme is known, and what follows it makes no sense.
    #[error("`{url}`: {why}")]
    Malformed {
        /// What was asked for.
        url: String,
        /// What is wrong, and how to write it.
        why: String,
    },
    /// The database file could not be opened.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Sqlite(#[from] crate::sqlite::OpenError),
    /// The database folder could not be opened.
    #[cfg(feature = "sled")]
    #[error(transparent)]
    Sled(#[from] crate::sled::OpenError),
    /// The keyspace could not be opened, or not be made ready.
    #[cfg(feature = "scylla")]
    #[error(transparent)]
    Scylla(#[from] crate::scylla::OpenError),
    /// The database could not be opened, or not be made ready.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(#[from] crate::postgres::OpenError),
    /// The table could not be opened, or not be made ready.
    #[cfg(feature = "dynamodb")]
    #[error(transparent)]
    DynamoDb(#[from] crate::dynamodb::OpenError),
}

impl OpenError {
    /// Whether what was asked for makes no sense, in this build at least; no storage was asked.
    pub fn is_misuse(&self) -> bool {
        match self {
            Self::NoScheme { .. }
            | Self::UnknownScheme { .. }
            | Self::NotInThisBuild { .. }
            | Self::Malformed { .. } => true,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => false,
            #[cfg(feature = "sled")]
            Self::Sled(_) => false,
            #[cfg(feature = "scylla")]
            Self::Scylla(error) => matches!(error, crate::scylla::OpenError::Url { .. }),
            #[cfg(feature = "postgres")]
            Self::Postgres(error) => matches!(error, crate::postgres::OpenError::Url { .. }),
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(error) => matches!(error, crate::dynamodb::OpenError::Url { .. }),
        }
    }

    /// Whether it was not the storage that refused, but the system something that this process needs.
    pub fn is_of_system(&self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(error) => {
                matches!(
                    error,
                    crate::sqlite::OpenError::Thread(_) | crate::sqlite::OpenError::Descriptors(_)
                )
            }
            _ => false,
        }
    }

    /// Whether it may pass by itself, so that trying again can help.
    pub fn is_passing(&self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(error) => {
                matches!(error, crate::sqlite::OpenError::Locked(_) | crate::sqlite::OpenError::Full(_))
            }
            #[cfg(feature = "scylla")]
            Self::Scylla(error) => error.is_passing(),
            #[cfg(feature = "postgres")]
            Self::Postgres(error) => error.is_passing(),
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(error) => {
                use crate::dynamodb::OpenError::{BeingCreated, CredentialsNotFetched, Request, Unreachable};
                matches!(
                    error,
                    CredentialsNotFetched(_) | Unreachable { .. } | BeingCreated(_) | Request { .. }
                )
            }
            _ => false,
        }
    }
}

/// What a URL names.
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
    DynamoDb(&'url str),
}

/// Opens the storage that `url` names. `clock` is for drivers whose time is this process's own (`mem:`).
///
/// # Errors
/// When the URL names no storage of this build, and when the storage can't be opened: each says what to do.
///
/// # Cancel safety
/// Dropped, it leaves nothing open.
pub async fn open(url: &str, clock: Arc<dyn Clock>) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    match parse(url)? {
        Place::Mem => open_mem(clock),
        Place::Sqlite(file) => open_sqlite(file).await,
        Place::Sled(path) => open_sled(path).await,
        Place::Scylla(url) => open_scylla(url).await,
        Place::Postgres(url) => open_postgres(url).await,
        Place::DynamoDb(url) => open_dynamodb(url).await,
    }
}

/// Makes the storage ready that `url` names: creates what [`open`] would look for in vain. May be run again,
/// and by many at once; what is there already is checked, and left as it is.
///
/// # Errors
/// When the URL names no storage of this build, when the storage refuses, and when what is there was made
/// otherwise.
///
/// # Cancel safety
/// Dropped, it leaves what it has created so far; running it again creates the rest.
pub async fn init_storage(url: &str) -> Result<(), OpenError> {
    match parse(url)? {
        Place::Mem => {}
        // Opening creates it.
        Place::Sqlite(file) => open_sqlite(file).await?.close().await,
        Place::Sled(path) => open_sled(path).await?.close().await,
        Place::Scylla(url) => init_scylla(url).await?,
        Place::Postgres(url) => init_postgres(url).await?,
        Place::DynamoDb(url) => init_dynamodb(url).await?,
    }
    Ok(())
}

fn parse(url: &str) -> Result<Place<'_>, OpenError> {
    let malformed = |why: &str| Err(OpenError::Malformed { url: url.to_owned(), why: why.to_owned() });
    // A path may have a colon in it, but no scheme has a slash or a dot.
    let Some((scheme, place)) =
        url.split_once(':').filter(|(scheme, _)| !scheme.is_empty() && !scheme.contains(['/', '.']))
    else {
        return Err(OpenError::NoScheme { url: url.to_owned() });
    };
    match scheme {
        "mem" if place.is_empty() => Ok(Place::Mem),
        "mem" => malformed("memory has no name: write `mem:`"),
        "sqlite" => File::parse(place).map(Place::Sqlite).or_else(|why| malformed(&why)),
        "sled" if place.is_empty() => malformed("the path is missing: write `sled:elections`"),
        "sled" if place.starts_with("//") => {
            malformed("there is no host in it: write `sled:elections` or `sled:/var/lib/elections`")
        }
        "sled" if place.contains('?') => malformed("it takes no options, and no `?` in the path"),
        "sled" => Ok(Place::Sled(place)),
        "scylla" => Ok(Place::Scylla(url)),
        "postgres" => Ok(Place::Postgres(url)),
        "dynamodb" => Ok(Place::DynamoDb(url)),
        _ => Err(OpenError::UnknownScheme { scheme: scheme.to_owned() }),
    }
}

#[cfg(feature = "mem")]
fn open_mem(clock: Arc<dyn Clock>) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    Ok(crate::mem::MemDatabase::new(clock).open())
}

#[cfg(not(feature = "mem"))]
fn open_mem(_clock: Arc<dyn Clock>) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    Err(OpenError::NotInThisBuild { scheme: "mem" })
}

#[cfg(feature = "sqlite")]
async fn open_sqlite(file: File<'_>) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    Ok(Arc::new(crate::sqlite::SqliteStorage::open(file.path.as_ref(), file.options()).await?))
}

#[cfg(not(feature = "sqlite"))]
async fn open_sqlite(_file: File<'_>) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    Err(OpenError::NotInThisBuild { scheme: "sqlite" })
}

#[cfg(feature = "sled")]
async fn open_sled(path: &str) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    Ok(Arc::new(crate::sled::SledStorage::open(path.as_ref()).await?))
}

#[cfg(not(feature = "sled"))]
async fn open_sled(_path: &str) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    Err(OpenError::NotInThisBuild { scheme: "sled" })
}

#[cfg(feature = "scylla")]
async fn open_scylla(url: &str) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    Ok(Arc::new(crate::scylla::ScyllaStorage::open(url).await?))
}

#[cfg(not(feature = "scylla"))]
async fn open_scylla(_url: &str) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    Err(OpenError::NotInThisBuild { scheme: "scylla" })
}

#[cfg(feature = "scylla")]
async fn init_scylla(url: &str) -> Result<(), OpenError> {
    Ok(crate::scylla::init(url).await?)
}

#[cfg(not(feature = "scylla"))]
async fn init_scylla(_url: &str) -> Result<(), OpenError> {
    Err(OpenError::NotInThisBuild { scheme: "scylla" })
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    Ok(Arc::new(crate::postgres::PostgresStorage::open(url).await?))
}

#[cfg(not(feature = "postgres"))]
async fn open_postgres(_url: &str) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    Err(OpenError::NotInThisBuild { scheme: "postgres" })
}

#[cfg(feature = "postgres")]
async fn init_postgres(url: &str) -> Result<(), OpenError> {
    Ok(crate::postgres::init(url).await?)
}

#[cfg(not(feature = "postgres"))]
async fn init_postgres(_url: &str) -> Result<(), OpenError> {
    Err(OpenError::NotInThisBuild { scheme: "postgres" })
}

#[cfg(feature = "dynamodb")]
async fn open_dynamodb(url: &str) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    Ok(Arc::new(crate::dynamodb::DynamoDbStorage::open(url).await?))
}

#[cfg(not(feature = "dynamodb"))]
async fn open_dynamodb(_url: &str) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    Err(OpenError::NotInThisBuild { scheme: "dynamodb" })
}

#[cfg(feature = "dynamodb")]
async fn init_dynamodb(url: &str) -> Result<(), OpenError> {
    Ok(crate::dynamodb::init(url).await?)
}

#[cfg(not(feature = "dynamodb"))]
async fn init_dynamodb(_url: &str) -> Result<(), OpenError> {
    Err(OpenError::NotInThisBuild { scheme: "dynamodb" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_scheme_and_a_place() {
        assert_eq!(parse("mem:").unwrap(), Place::Mem);
        for path in ["elections.db", "/var/lib/a b.db", "../x:y", "./a", "C:", " ", "ä%20#"] {
            let file = |allows_overlay| Place::Sqlite(File { path, allows_overlay });
            assert_eq!(parse(&format!("sqlite:{path}")).unwrap(), file(false));
            assert_eq!(parse(&format!("sqlite:{path}?allow=overlay")).unwrap(), file(true));
            assert_eq!(parse(&format!("sled:{path}")).unwrap(), Place::Sled(path));
        }
        let cluster = "scylla://host1,host2:9042/keyspace?datacenter=dc1";
        assert_eq!(parse(cluster).unwrap(), Place::Scylla(cluster));
        let table = "dynamodb://eu-west-1/elections?endpoint=http://localhost:8000";
        assert_eq!(parse(table).unwrap(), Place::DynamoDb(table));
    }

    #[test]
    fn a_wrong_url_is_misuse_and_does_not_pass() {
        let error = parse("elections.db").unwrap_err();
        assert!(error.is_misuse() && !error.is_passing());
        #[cfg(feature = "sqlite")]
        {
            let path = || "elections.db".into();
            let locked = OpenError::from(crate::sqlite::OpenError::Locked(path()));
            assert!(locked.is_passing() && !locked.is_misuse());
            assert!(!OpenError::from(crate::sqlite::OpenError::NotADatabase(path())).is_passing());
        }
    }

    #[test]
    fn only_a_file_with_something_in_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("elections.db");
        let url = format!("sqlite:{}", path.display());
        assert!(!exists("mem:").unwrap());
        assert!(!exists(&url).unwrap());
        std::fs::write(&path, "").unwrap();
        assert!(!exists(&url).unwrap());
        std::fs::write(&path, "not a database, which opening will say").unwrap();
        assert!(exists(&url).unwrap());
        assert!(exists("elections.db").is_err());
    }

    #[test]
    fn what_is_shared_is_known_before_opening() {
        assert!(shared_between_processes("sqlite:elections.db").unwrap());
        assert!(shared_between_processes("scylla://host/keyspace").unwrap());
        assert!(shared_between_processes("dynamodb://eu-west-1/table").unwrap());
        assert!(!shared_between_processes("sled:folder").unwrap());
        assert!(!shared_between_processes("mem:").unwrap());
        assert!(shared_between_processes("elections.db").is_err());
    }

    #[test]
    fn what_is_wrong_is_said_with_the_way_out() {
        let table = [
            ("", "a file would be `sqlite:`"),
            ("elections.db", "a file would be `sqlite:elections.db`"),
            ("/var/lib/a:b.db", "a file would be `sqlite:/var/lib/a:b.db`"),
            (":memory:", "write one of mem:, sqlite:PATH"),
            ("mem:name", "write `mem:`"),
            ("mem://", "write `mem:`"),
            ("sqlite:", "the path is missing"),
            ("sqlite::memory:", "write `mem:`"),
            ("sqlite:///var/lib/elections.db", "write `sqlite:elections.db` or"),
            ("sqlite:?allow=overlay", "the path is missing"),
            ("sqlite:a.db?mode=rw", "no option `mode`; there is allow"),
            ("sqlite:a.db?allow", "write allow=VALUE"),
            ("sqlite:a.db?allow=nfs", "`nfs` can't be allowed: the only value is allow=overlay"),
            ("sqlite:a?b.db?allow=overlay", "a path can't contain a `?`"),
            ("sqlit:a.db", "no storage `sqlit:`; there are mem:, sqlite:PATH"),
            ("SQLITE:a.db", "no storage `SQLITE:`; there are"),
            ("mysql://host/database", "no storage `mysql:`"),
            ("sled:", "the path is missing"),
            ("sled:///var/lib/elections", "write `sled:elections` or"),
            ("sled:elections?mode=rw", "takes no options"),
        ];
        for (url, part) in table {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(part), "{url}: {error}");
        }
    }
}
