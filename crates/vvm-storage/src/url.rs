//! The storage that a URL names.
//!
//! | URL | storage |
//! |---|---|
//! | `mem:` | the memory of this process; empty at first, lost at its end |
//! | `sqlite:/var/lib/vvm/elections.db` | a file, created on first use; a relative path means another file in each folder |
//! | `sled:/var/lib/vvm/elections` | a folder of one process, created on first use |
//! | `scylla://host1,host2:9042/keyspace?datacenter=dc1` | a keyspace of ScyllaDB or Apache Cassandra |
//! | `postgres://user@host1,host2:5432/database` | a schema in a database of PostgreSQL |
//! | `mysql://user@host1,host2:3306/database` | tables in a database of MariaDB or MySQL |
//! | `etcd://host1,host2,host3:2379/elections` | keys below a prefix of an etcd cluster |
//! | `k8s://namespace` | Leases in a namespace of Kubernetes |
//! | `dynamodb://eu-west-1/elections` | a table of Amazon DynamoDB |
//! | `s3://bucket/elections?region=eu-west-1`, `gs://bucket/elections`, `az://container/elections?account=payroll` | a bucket |
//!
//! docs/storages/ has the options of each. After `sqlite:` and `sled:` comes a path; nothing in it is escaped, and it
//! can't contain a `?`. An absolute path may have two slashes in front (`sqlite:///var/lib/vvm/elections.db`).

use crate::{
    drivers::config::options,
    opening::{self, OpenError, StorageUrl},
    sysvvm::SysVvmStorage,
};
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};
use vvm_clock::Clock;

struct Scheme {
    name: &'static str,
    form: &'static str,
    feature: &'static str,
    is_here: bool,
    credentials: &'static [&'static str],
}

/// All of them. `postgresql` means `postgres`, and `mariadb` means `mysql`.
static SCHEMES: [Scheme; 12] = [
    kind("sqlite", "sqlite:PATH", "sqlite", cfg!(feature = "sqlite"), &[]),
    kind("mem", "mem:", "mem", cfg!(feature = "mem"), &[]),
    kind("sled", "sled:PATH", "sled", cfg!(feature = "sled"), &[]),
    kind("postgres", "postgres://USER@HOST/DATABASE", "postgres", cfg!(feature = "postgres"), PASSWORD),
    kind("mysql", "mysql://USER@HOST/DATABASE", "mysql", cfg!(feature = "mysql"), PASSWORD),
    kind("etcd", "etcd://HOST/PREFIX", "etcd", cfg!(feature = "etcd"), PASSWORD),
    kind("scylla", "scylla://HOST/KEYSPACE", "scylla", cfg!(feature = "scylla"), PASSWORD),
    kind("k8s", "k8s://NAMESPACE", "kubernetes", cfg!(feature = "kubernetes"), &[]),
    kind("dynamodb", "dynamodb://REGION/TABLE", "dynamodb", cfg!(feature = "dynamodb"), OF_DYNAMODB),
    kind("s3", "s3://BUCKET/PREFIX?region=REGION", "object-store", OBJECTS, OF_S3),
    kind("gs", "gs://BUCKET/PREFIX", "object-store", OBJECTS, &["GOOGLE_SERVICE_ACCOUNT_KEY"]),
    kind("az", "az://CONTAINER/PREFIX?account=ACCOUNT", "object-store", OBJECTS, OF_AZURE),
];

const OBJECTS: bool = cfg!(feature = "object-store");

const PASSWORD: &[&str] = &["VVM_STORAGE_PASSWORD"];

const OF_DYNAMODB: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
];

const OF_S3: &[&str] = &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

const OF_AZURE: &[&str] = &[
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_CLIENT_SECRET",
];

const fn kind(
    name: &'static str,
    form: &'static str,
    feature: &'static str,
    is_here: bool,
    credentials: &'static [&'static str],
) -> Scheme {
    Scheme { name, form, feature, is_here, credentials }
}

struct StorageFile<'url> {
    scheme: &'static Scheme,
    /// After `sqlite:` and `sled:`; empty for others.
    path: &'url str,
    /// `allow=overlay`: all candidates see the overlay that the file is on.
    allows_overlay: bool,
    /// `mode=0660`: the file is created for the group, too.
    for_group: bool,
}

impl StorageFile<'_> {
    fn is_server(&self) -> bool {
        !matches!(self.scheme.feature, "mem" | "sled" | "sqlite")
    }

    fn not_in_this_build(&self) -> OpenError {
        let Scheme { name, feature, .. } = self.scheme;
        OpenError::misuse(format!(
            "this build has no driver for `{name}:`: build it with the cargo feature `{feature}` ({Available})"
        ))
    }

    #[cfg(feature = "sqlite")]
    fn options(&self) -> crate::sqlite::OpenOptions {
        crate::sqlite::OpenOptions { allow_overlay: self.allows_overlay, for_group: self.for_group }
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
    #[cfg(not(feature = "mem"))]
    drop(clock);
    let place = parse(url)?;
    match place.scheme.feature {
        #[cfg(feature = "mem")]
        "mem" => Ok(crate::mem::MemDatabase::new(clock).open()),
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            Ok(Arc::new(crate::sqlite::SqliteStorage::open(place.path.as_ref(), place.options()).await?))
        }
        #[cfg(feature = "sled")]
        "sled" => {
            let cells = crate::sled::SledCells::open(place.path.as_ref()).await?;
            Ok(Arc::new(crate::cells::Cells::new(cells)))
        }
        #[cfg(feature = "scylla")]
        "scylla" => Ok(Arc::new(crate::scylla::ScyllaStorage::open(url).await?)),
        #[cfg(feature = "postgres")]
        "postgres" => Ok(Arc::new(crate::postgres::PostgresStorage::open(url).await?)),
        #[cfg(feature = "mysql")]
        "mysql" => Ok(Arc::new(crate::mysql::MySqlStorage::open(url).await?)),
        #[cfg(feature = "etcd")]
        "etcd" => Ok(Arc::new(crate::etcd::EtcdStorage::open(url).await?)),
        #[cfg(feature = "kubernetes")]
        "kubernetes" => {
            let leases = crate::kubernetes::LeaseStorage::open(url).await?;
            Ok(Arc::new(crate::cells::Cells::new(leases)))
        }
        #[cfg(feature = "dynamodb")]
        "dynamodb" => Ok(Arc::new(crate::dynamodb::DynamoDbStorage::open(url).await?)),
        #[cfg(feature = "object-store")]
        "object-store" => {
            let cells = crate::objects::ObjectCells::open(url).await?;
            Ok(Arc::new(crate::cells::Cells::new(cells)))
        }
        _ => Err(place.not_in_this_build()),
    }
}

/// As [`open`], errors and cancel safety too, for a process that only looks. It needs no right to write on a server. A
/// look may adopt the history of a SQL database after a fail-over, as that of a candidate does.
pub async fn open_read_only(url: &str, clock: Arc<dyn Clock>) -> Result<Arc<dyn SysVvmStorage>, OpenError> {
    let place = parse(url)?;
    match place.scheme.feature {
        #[cfg(feature = "object-store")]
        "object-store" => {
            let cells = crate::objects::ObjectCells::open_read_only(url).await?;
            Ok(Arc::new(crate::cells::Cells::to_look(cells)))
        }
        #[cfg(feature = "kubernetes")]
        "kubernetes" => {
            let leases = crate::kubernetes::LeaseStorage::open(url).await?;
            Ok(Arc::new(crate::cells::Cells::to_look(leases)))
        }
        #[cfg(feature = "sled")]
        "sled" => {
            let cells = crate::sled::SledCells::open(place.path.as_ref()).await?;
            Ok(Arc::new(crate::cells::Cells::to_look(cells)))
        }
        #[cfg(feature = "postgres")]
        "postgres" => Ok(Arc::new(crate::postgres::PostgresStorage::open_read_only(url).await?)),
        #[cfg(feature = "mysql")]
        "mysql" => Ok(Arc::new(crate::mysql::MySqlStorage::open_read_only(url).await?)),
        _ => open(url, clock).await,
    }
}

/// Creates the storage that `url` names, as far as it is missing. May be run again, and by several processes at once:
/// what exists is checked and left unchanged.
///
/// # Errors
/// If the URL names no storage of this build, if the storage refuses, or if it was created with other settings.
///
/// # Cancel safety
/// Dropped, it leaves what it has created so far. Running it again creates the rest.
pub async fn init_storage(url: &str) -> Result<(), OpenError> {
    let place = parse(url)?;
    match place.scheme.feature {
        #[cfg(feature = "mem")]
        "mem" => Ok(()),
        // Opening creates it.
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            crate::sqlite::SqliteStorage::open(place.path.as_ref(), place.options()).await?.close().await;
            Ok(())
        }
        #[cfg(feature = "sled")]
        "sled" => {
            use crate::cells::CellStorage as _;
            crate::sled::SledCells::open(place.path.as_ref()).await?.close().await;
            Ok(())
        }
        #[cfg(feature = "scylla")]
        "scylla" => crate::scylla::init(url).await,
        #[cfg(feature = "postgres")]
        "postgres" => crate::postgres::PostgresStorage::init(url).await,
        #[cfg(feature = "mysql")]
        "mysql" => crate::mysql::MySqlStorage::init(url).await,
        #[cfg(feature = "etcd")]
        "etcd" => crate::etcd::init(url).await,
        #[cfg(feature = "kubernetes")]
        "kubernetes" => crate::kubernetes::init(url).await,
        #[cfg(feature = "dynamodb")]
        "dynamodb" => crate::dynamodb::init(url).await,
        #[cfg(feature = "object-store")]
        "object-store" => Ok(crate::objects::init(url).await?),
        _ => Err(place.not_in_this_build()),
    }
}

/// Whether processes can share the storage that `url` names. Needs no driver. Fails only if the URL is malformed.
pub fn shared_between_processes(url: &str) -> Result<bool, OpenError> {
    let place = parse(url)?;
    Ok(place.is_server() || place.scheme.feature == "sqlite")
}

/// Whether the storage that `url` names is on a server, so that it outlasts the loss of a candidate's machine. Needs
/// neither an open storage nor the driver, and fails only if the URL is malformed.
pub fn shared_between_machines(url: &str) -> Result<bool, OpenError> {
    Ok(parse(url)?.is_server())
}

/// Whether the storage that `url` names exists, so that opening it creates nothing. Always `false` for memory, and
/// always `true` for a server: opening creates no keyspace and no table. Fails only if the URL is malformed.
pub fn exists(url: &str) -> Result<bool, OpenError> {
    let place = parse(url)?;
    if place.is_server() || place.scheme.feature == "mem" {
        return Ok(place.is_server());
    }
    let data = (place.scheme.feature == "sled").then(|| PathBuf::from(place.path).join("db"));
    match fs::metadata(data.as_deref().unwrap_or(place.path.as_ref())) {
        // Opening makes an empty file a database.
        Ok(metadata) => Ok(!metadata.is_file() || metadata.len() > 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        // Opening reports the obstacle.
        Err(_) => Ok(true),
    }
}

/// Returns the files of the storage that `url` names, whether they exist or not: no other program may write
/// to them. Empty for a storage that is not a file, and for a malformed URL.
pub fn files(url: &str) -> Vec<PathBuf> {
    let Some(place) = parse(url).ok().filter(|place| place.scheme.feature == "sqlite") else {
        return Vec::new();
    };
    // SQLite names the others after the target of a symlink.
    let target = fs::canonicalize(place.path).unwrap_or_else(|_| place.path.into());
    let named = |ending: &str| {
        let mut name = target.clone().into_os_string();
        name.push(ending);
        PathBuf::from(name)
    };
    ["", "-wal", "-shm", "-journal"].map(named).into()
}

/// Returns the path that a relative one in `url` means in the current folder. `None` for an absolute path, for a
/// storage without a path, and for a malformed URL.
pub fn meaning_of_relative_path(url: &str) -> Option<PathBuf> {
    let place = parse(url).ok().filter(|place| !place.is_server() && place.scheme.feature != "mem")?;
    let path = Path::new(place.path);
    if path.is_absolute() { None } else { std::path::absolute(path).ok() }
}

/// Returns path, owner and mode of the SQLite file that `url` names. `None` for any other storage.
pub fn file_and_owner(url: &str) -> Option<String> {
    let place = parse(url).ok()?;
    match place.scheme.feature {
        #[cfg(feature = "sqlite")]
        "sqlite" => Some(format!("{}, {}", place.path, crate::sqlite::owners(place.path.as_ref()))),
        _ => None,
    }
}

/// Returns the environment variables with the storage's credentials, not those that only say where these are. A process
/// that is started here and does not use the storage should not inherit them. Empty if `url` names no storage.
pub fn credentials(url: &str) -> &'static [&'static str] {
    parse(url).map_or(&[], |place| place.scheme.credentials)
}

/// Whether `url` has a password. All users of a machine can read command lines, so it must not stand there.
pub fn has_password(url: &str) -> bool {
    match parse(url) {
        #[cfg(feature = "postgres")]
        Ok(place) if place.scheme.feature == "postgres" => {
            crate::postgres::PostgresStorage::has_password(url)
        }
        #[cfg(feature = "mysql")]
        Ok(place) if place.scheme.feature == "mysql" => crate::mysql::MySqlStorage::has_password(url),
        _ => false,
    }
}

/// Returns the schemes of the drivers in this build.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    SCHEMES.iter().filter(|scheme| scheme.is_here).map(|scheme| scheme.name)
}

struct Available;

impl fmt::Display for Available {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (here, others): (Vec<_>, Vec<_>) = SCHEMES.iter().partition(|scheme| scheme.is_here);
        let forms: Vec<_> = here.iter().map(|scheme| scheme.form).collect();
        write!(out, "this build has {}", forms.join(", "))?;
        let names = others.iter().map(|scheme| scheme.name).collect::<Vec<_>>().join(", ");
        let names =
            names.replace("k8s", "kubernetes (k8s)").replace("s3, gs, az", "object-store (s3, gs, az)");
        if names.is_empty() { Ok(()) } else { write!(out, "; cargo features add {names}") }
    }
}

fn parse(url: &str) -> Result<StorageFile<'_>, OpenError> {
    let Some((name, rest)) = opening::split(url) else {
        let shown = StorageUrl::from(url).to_string();
        let meant = std::path::absolute(&shown).unwrap_or_else(|_| "PATH".into());
        let meant = meant.display();
        return Err(OpenError::misuse(format!(
            "`{shown}` names no storage: write `sqlite:{meant}` for a file ({Available})"
        )));
    };
    let known = match name {
        "postgresql" => "postgres",
        "mariadb" => "mysql",
        name => name,
    };
    let Some(scheme) = SCHEMES.iter().find(|scheme| scheme.name == known) else {
        return Err(OpenError::misuse(format!("there is no storage `{name}:`: {Available}")));
    };
    let mut place = StorageFile { scheme, path: "", allows_overlay: false, for_group: false };
    let parsed = match scheme.feature {
        "mem" if !rest.is_empty() => Err("memory has no name: write `mem:`".into()),
        "sled" => place.parse_folder(rest),
        "sqlite" => place.parse_file(rest),
        _ => Ok(()),
    };
    parsed.map_err(|why| OpenError::of_url(url, why))?;
    Ok(place)
}

/// Without the two slashes that may precede an absolute path. `None` if there is a host.
fn without_slashes(place: &str) -> Option<&str> {
    match place.strip_prefix("//") {
        Some(path) => path.starts_with('/').then_some(path),
        None => Some(place),
    }
}

impl<'url> StorageFile<'url> {
    fn parse_folder(&mut self, rest: &'url str) -> Result<(), String> {
        self.path = without_slashes(rest).ok_or("a path has no host: write `sled:/var/lib/vvm/elections`")?;
        match self.path {
            "" => Err("the path is missing: write `sled:/var/lib/vvm/elections`".into()),
            path if path.contains('?') => {
                Err("`sled:` takes no options, and its path can't contain a `?`".into())
            }
            _ => Ok(()),
        }
    }

    fn parse_file(&mut self, rest: &'url str) -> Result<(), String> {
        let (path, text) = rest.split_once('?').unwrap_or((rest, ""));
        self.path =
            without_slashes(path).ok_or("a path has no host: write `sqlite:/var/lib/vvm/elections.db`")?;
        match self.path {
            "" => return Err("the path is missing: write `sqlite:/var/lib/vvm/elections.db`".into()),
            ":memory:" => return Err("for a storage in memory write `mem:`".into()),
            _ => {}
        }
        for option in options(text) {
            match option? {
                ("allow", "overlay") => self.allows_overlay = true,
                ("allow", _) => return Err("only overlayfs can be allowed: write allow=overlay".into()),
                ("mode", "0600") => self.for_group = false,
                ("mode", "0660") => self.for_group = true,
                ("mode", _) => return Err("a mode is mode=0600 or mode=0660".into()),
                (name, _) => {
                    return Err(format!(
                        "there is no option `{name}`; there are allow and mode (a path can't contain a `?`)"
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
