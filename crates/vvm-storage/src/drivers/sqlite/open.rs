//! From a path to a database that is ready, and everything that opening refuses.

mod error;
mod file_system;
mod location;
mod mount;
mod options;
mod place;
mod schema;

pub use error::OpenError;
pub(super) use location::Location;
pub use options::OpenOptions;

use super::{
    errors::DriverError,
    rows::{Origin, Rows},
};
use crate::Provenance;
use file_system::FileSystem;
use place::Place;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, access};
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// How long opening waits for a lock of another process, which may be creating the same file on a disk that
/// is slow to sync (seconds, where others write much).
const PATIENCE: Duration = Duration::from_secs(5);

/// Room for every statement of this driver, and a few: none is prepared twice.
const STATEMENTS: usize = 32;

/// An open database.
#[derive(Debug)]
pub(super) struct Database {
    connection: Connection,
    place: Place,
    origin: Option<Origin>,
    location: Location,
}

/// Opens the database at `path`, and creates it on first use.
pub(super) fn open(path: &Path, options: OpenOptions) -> Result<Database, OpenError> {
    open_on(path, options, FileSystem::of)
}

/// As [`open`]; where this user may not write, only to read.
///
/// That takes more than the file: its log and the log's index, which this user can't make. Who reads holds
/// locks of his own in the index, as everybody who reads does, and whoever writes heeds them.
pub(super) fn open_to_look(path: &Path, options: OpenOptions) -> Result<Database, OpenError> {
    match open(path, options) {
        Err(OpenError::ReadOnlyFile(_) | OpenError::ReadOnlyFolder(_))
            if access(path, Access::READ_OK).is_ok() =>
        {
            open_to_read(path).map_err(|error| match error {
                // No log, or one that has to be mended first.
                OpenError::ReadOnlyFile(_)
                | OpenError::ReadOnlyFolder(_)
                | OpenError::System { .. }
                | OpenError::Sqlite { .. } => OpenError::OnlyWhileInUse(path.to_owned()),
                other => other,
            })
        }
        outcome => outcome,
    }
}

fn open_to_read(given: &Path) -> Result<Database, OpenError> {
    let path = place::absolute(given)?;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = connect(&path, flags)?;
    schema::check(&path, &connection)?;
    ready(Location::of(given, &path, Provenance::Existing), path, connection)
}

/// Refuses a place where [`open`] would refuse to open or create a database.
pub(super) fn check_place(path: &Path, options: OpenOptions) -> Result<(), OpenError> {
    place::check(&place::absolute(path)?, options, FileSystem::of)
}

/// As [`open`], with file systems told by `file_system_of`.
fn open_on(
    given: &Path,
    options: OpenOptions,
    file_system_of: impl Fn(&Path) -> io::Result<FileSystem>,
) -> Result<Database, OpenError> {
    let path = place::absolute(given)?;
    place::check(&path, options, file_system_of)?;
    // No SQLITE_OPEN_URI, and an absolute path: no name is special to SQLite.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = connect(&path, flags)?;
    let provenance = schema::prepare(&path, &connection)?;
    ready(Location::of(given, &path, provenance), path, connection)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, OpenError> {
    let opened = Connection::open_with_flags(path, flags).and_then(|connection| {
        connection.busy_timeout(PATIENCE)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(connection)
    });
    opened.map_err(|error| error::of_sqlite(path, error))
}

fn ready(location: Location, path: PathBuf, connection: Connection) -> Result<Database, OpenError> {
    // From here on the writer waits in its own way.
    connection.busy_timeout(Duration::ZERO).map_err(|error| error::of_sqlite(&path, error))?;
    let beside = connection.path().map_or_else(|| path.clone(), PathBuf::from);
    let place = Place::of(path, &beside)?;
    Ok(Database { connection, place, origin: Origin::of_this_process(), location })
}

impl Database {
    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    pub(super) fn rows(&self) -> Rows<'_> {
        Rows::of(&self.connection, self.origin.as_ref())
    }

    /// Whether the files are still those that their paths lead to.
    pub(super) fn check_in_place(&self) -> Result<(), DriverError> {
        if self.place.is_unchanged() { Ok(()) } else { Err(DriverError::Replaced) }
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    /// Takes the write lock, and checks under it that the files are in place.
    pub(super) fn begin(&self) -> Result<(), DriverError> {
        if self.is_in_transaction() {
            // A roll-back that failed before: nothing goes on until it succeeds.
            self.roll_back()?;
        }
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        self.check_in_place().inspect_err(|_| {
            // What comes of it changes nothing: the file is lost to us either way.
            let _outcome = self.roll_back();
        })
    }

    /// Commits, and checks again that the files are in place: what they were before it proves nothing, and a
    /// commit to a file that was replaced meanwhile is one that nobody sees. When it fails, nothing of the
    /// transaction goes on.
    pub(super) fn commit(&self) -> Result<(), DriverError> {
        let outcome = self.connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        if let Err(error) = outcome {
            if self.is_in_transaction() {
                // If it fails, `begin` tries again before anything else is written.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_is_not_listed_is_refused_before_anything_is_made() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("elections.db");
        let Err(error) = open_on(&path, OpenOptions::new().allow_overlay(), |_| Ok(FileSystem::NFS)) else {
            panic!("opened on NFS")
        };
        assert!(error.to_string().contains("is on NFS, where locks"), "{error}");
        assert!(error.to_string().contains("ext4"), "{error}");
        assert!(!path.exists());

        // A file that is there is what is asked about: it may be elsewhere than its folder.
        let none = OpenOptions::new();
        drop(open_on(&path, none, |_| Ok(FileSystem::EXT4)).unwrap());
        let elsewhere = |asked: &Path| Ok(if asked == path { FileSystem::NFS } else { FileSystem::EXT4 });
        assert!(matches!(open_on(&path, none, elsewhere), Err(OpenError::FileSystem { .. })));

        let unknown = |_: &Path| Err(io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(matches!(open_on(&path, none, unknown), Err(OpenError::System { .. })));
    }

    #[test]
    fn overlayfs_is_refused_before_anything_is_made_unless_it_is_allowed() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("elections.db");
        let on_overlay = |options| open_on(&path, options, |_| Ok(FileSystem::OVERLAY));
        let Err(error) = on_overlay(OpenOptions::new()) else { panic!("opened on overlayfs") };
        for part in
            [path.to_str().unwrap(), "is on overlayfs", "a volume or a bind mount", "`?allow=overlay`"]
        {
            assert!(error.to_string().contains(part), "{error}");
        }
        assert!(!path.exists());
        drop(on_overlay(OpenOptions::new().allow_overlay()).unwrap());
        assert!(matches!(on_overlay(OpenOptions::new()), Err(OpenError::Overlay(_))));
    }
}
