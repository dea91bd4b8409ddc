//! [`Database`]: an open file, and its transactions. Opening creates file and tables.

use super::{
    DriverError,
    config::{self, DatabaseFiles, Location, OpenOptions},
    file_system::FileSystem,
    obstacle::{Obstacle, of_sqlite, read_only_file, refused},
    rows::{Origin, Rows},
    statements::SCHEMA,
};
use crate::{opening::OpenError, sysvvm::Provenance};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::{
    fs::{File, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};
use vvm_clock::SystemClock;

/// How long opening waits for a lock of another process, which may create the file on a disk that syncs in seconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// How long one attempt to open waits for a lock, and so how soon an abandoned one ends.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(50);

/// The pause before the next attempt. In some states SQLite refuses a lock at once.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(1);

/// More than this driver has statements: none is prepared twice.
const STATEMENTS: usize = 32;

#[derive(Debug)]
pub(super) struct Database {
    connection: Connection,
    place: DatabaseFiles,
    origin: Option<Origin>,
    location: Location,
}

/// Repeats `open` while another process has locked the database, for [`LOCK_TIMEOUT`] or until no caller is left.
pub(super) fn wait_for_lock(
    open: impl Fn() -> Result<Database, Obstacle>,
    is_abandoned: &dyn Fn() -> bool,
) -> Result<Database, OpenError> {
    let give_up_at = SystemClock::read().after(LOCK_TIMEOUT);
    loop {
        match open() {
            Err(Obstacle::Locked(_)) if SystemClock::read() < give_up_at && !is_abandoned() => {
                thread::park_timeout(ATTEMPT_PAUSE);
            }
            outcome => return outcome.map_err(OpenError::from),
        }
    }
}

pub(super) fn open(path: &Path, options: OpenOptions) -> Result<Database, Obstacle> {
    open_on(path, options, FileSystem::detect)
}

fn open_on(
    given: &Path,
    options: OpenOptions,
    file_system_of: impl Fn(&Path) -> io::Result<FileSystem>,
) -> Result<Database, Obstacle> {
    let path = config::absolute(given)?;
    config::check(&path, options, file_system_of)?;
    create(&path, options);
    config::check_writable(&path)?;
    let sqlite = |error| of_sqlite(&path, error);
    let connection = connect(&path).map_err(sqlite)?;
    let provenance = prepare(&path, &connection)?;
    // From here on the writer itself waits for locks.
    connection.busy_timeout(Duration::ZERO).map_err(sqlite)?;
    let location = Location::new(given, &path, provenance);
    let beside = connection.path().map_or_else(|| path.clone(), PathBuf::from);
    let place = DatabaseFiles::find(path, &beside)?;
    Ok(Database { connection, place, origin: Origin::of_this_process(), location })
}

static CREATING: Mutex<()> = Mutex::new(());

/// Creates the file with the permissions of `options`, unless it exists. SQLite gives its side files the same. Closing
/// a descriptor of the file drops the locks that this process holds on it (POSIX). So no other thread of this process
/// may open the file with SQLite before the descriptor is closed here.
fn create(path: &Path, options: OpenOptions) {
    let _one_at_a_time = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    let mode = if options.for_group { 0o660 } else { 0o600 };
    let created = File::options().write(true).create_new(true).mode(mode).open(path);
    // Not reduced by the umask. An error is not reported: opening fails next, and says more.
    let _outcome = created.and_then(|file| file.set_permissions(Permissions::from_mode(mode)));
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    // An absolute path without SQLITE_OPEN_URI: no name is special to SQLite.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(ATTEMPT_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

impl Database {
    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    pub(super) fn rows(&self) -> Rows<'_> {
        Rows::new(&self.connection, self.origin.as_ref())
    }

    pub(super) fn check_in_place(&self) -> Result<(), DriverError> {
        if self.place.is_unchanged() { Ok(()) } else { Err(DriverError::Replaced) }
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    /// Takes the write lock, and checks under it that the files are in place.
    pub(super) fn begin(&self) -> Result<(), DriverError> {
        if self.is_in_transaction() {
            // A roll-back has failed before. Nothing is written until one succeeds.
            self.roll_back()?;
        }
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        self.check_in_place().inspect_err(|_| {
            // The outcome does not matter: the file is lost to this handle.
            let _outcome = self.roll_back();
        })
    }

    /// Commits, then checks that the files are still in place: a commit to a replaced file is seen by no
    /// other process. If it fails, the transaction is over.
    pub(super) fn commit(&self) -> Result<(), DriverError> {
        let outcome = self.connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        if let Err(error) = outcome {
            if self.is_in_transaction() {
                // If this fails, `begin` rolls back before the next write.
                let _outcome = self.roll_back();
            }
            return Err(error.into());
        }
        self.check_in_place()
    }

    fn roll_back(&self) -> Result<(), DriverError> {
        self.connection.prepare_cached("ROLLBACK")?.execute([])?;
        Ok(())
    }
}

/// "VVM1": identifies the database to `file` and other programs.
const APPLICATION_ID: i64 = 0x5656_4d31;

/// The format of the rows. A change that an older version would misread raises it, as does a new table.
const USER_VERSION: i64 = 2;

fn prepare(path: &Path, connection: &Connection) -> Result<Provenance, Obstacle> {
    let sqlite = |cause| of_sqlite(path, cause);
    // One consistent view: another process may be creating the tables.
    let has_our_tables = || has_tables(path, &*connection.unchecked_transaction().map_err(sqlite)?);
    // Before any change, even of the journal mode: another program's database is not changed.
    let is_made = has_our_tables()?;
    if connection.is_readonly(rusqlite::MAIN_DB).map_err(sqlite)? {
        return Err(read_only_file(path));
    }
    keep_log(path, connection)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(sqlite)?;
    // macOS needs it for a sync that reaches the disk; elsewhere it has no effect.
    connection.pragma_update(None, "fullfsync", true).map_err(sqlite)?;
    if !is_made {
        return make_tables(path, connection);
    }
    // Opens the log, also of a file that had none, as that of `VACUUM INTO`.
    has_our_tables()?;
    Ok(Provenance::Existing)
}

/// Whether it is a database of this driver; `false` if it is new. Call it within a transaction.
fn has_tables(path: &Path, view: &Connection) -> Result<bool, Obstacle> {
    let number =
        |sql| view.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(|cause| of_sqlite(path, cause));
    let at = path.display();
    let application = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    match (application, version) {
        (0, 0) if tables == 0 => Ok(false),
        (APPLICATION_ID, USER_VERSION) => Ok(true),
        (APPLICATION_ID, found) if found > USER_VERSION => Err(refused(format!(
            "{at} has format {found}, and this version knows formats up to {USER_VERSION}: use the newer version"
        ))),
        _ => Err(refused(format!("{at} is a database of another program: name another file"))),
    }
}

/// Makes the tables in one transaction. Of several processes the first makes them.
fn make_tables(path: &Path, connection: &Connection) -> Result<Provenance, Obstacle> {
    let sqlite = |cause| of_sqlite(path, cause);
    let transaction =
        rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate).map_err(sqlite)?;
    let are_made = has_tables(path, &transaction)?;
    if !are_made {
        transaction.execute_batch(SCHEMA).map_err(sqlite)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(sqlite)?;
        transaction.pragma_update(None, "user_version", USER_VERSION).map_err(sqlite)?;
    }
    transaction.commit().map_err(sqlite)?;
    Ok(if are_made { Provenance::Existing } else { Provenance::Created })
}

/// Turns on the write-ahead log, which stays on. While another process reads or writes, SQLite does not wait
/// here, because two processes could wait for each other.
fn keep_log(path: &Path, connection: &Connection) -> Result<(), Obstacle> {
    let mode = connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))
        .map_err(|error| of_sqlite(path, error))?;
    if mode == "wal" {
        return Ok(());
    }
    let at = path.display();
    Err(refused(format!("{at} can't keep a write-ahead log, only {mode}: use a local file system")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANYWHERE: OpenOptions = OpenOptions { allow_overlay: true, for_group: false };

    #[test]
    fn unlisted_file_system_is_refused_before_a_file_is_created() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("elections.db");
        let Err(error) = open_on(&path, ANYWHERE, |_| Ok(FileSystem::NFS)) else { panic!("opened on NFS") };
        let error = OpenError::from(error);
        assert!(error.to_string().contains("is on NFS, where locks"), "{error}");
        assert!(error.to_string().contains("ext4"), "{error}");
        assert!(!path.exists());

        // An existing file counts, not its folder: they may be on different file systems.
        let none = OpenOptions::default();
        drop(open_on(&path, none, |_| Ok(FileSystem::EXT4)).unwrap());
        let elsewhere = |asked: &Path| Ok(if asked == path { FileSystem::NFS } else { FileSystem::EXT4 });
        assert!(matches!(open_on(&path, none, elsewhere), Err(Obstacle::Other(_))));

        let unknown = |_: &Path| Err(io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(matches!(open_on(&path, none, unknown), Err(Obstacle::Other(_))));
    }

    #[test]
    fn link_without_a_target_is_refused_and_creates_no_file() {
        let folder = tempfile::TempDir::new().unwrap();
        let (link, target) = (folder.path().join("link.db"), folder.path().join("target.db"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let outcome = open_on(&link, OpenOptions::default(), |_| Ok(FileSystem::EXT4));
        assert!(!target.exists());
        let error = OpenError::from(outcome.unwrap_err()).to_string();
        assert!(error.contains("link.db is a symbolic link without a target: name the file"), "{error}");
    }

    #[test]
    fn overlayfs_is_refused_before_a_file_is_created_unless_allowed() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("elections.db");
        let on_overlay = |options| open_on(&path, options, |_| Ok(FileSystem::OVERLAY));
        let Err(error) = on_overlay(OpenOptions::default()) else { panic!("opened on overlayfs") };
        let error = OpenError::from(error);
        for part in
            [path.to_str().unwrap(), "is on overlayfs", "a volume or a bind mount", "`?allow=overlay`"]
        {
            assert!(error.to_string().contains(part), "{error}");
        }
        assert!(!path.exists());
        drop(on_overlay(ANYWHERE).unwrap());
        assert!(matches!(on_overlay(OpenOptions::default()), Err(Obstacle::Other(_))));
    }
}
