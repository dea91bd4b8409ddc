//! Checks whether a database is this driver's, brings its format up to date, and sets how it syncs.

use super::{super::rows::SCHEMAS, OpenError, error::of_sqlite};
use crate::Provenance;
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;

/// "VVM1": identifies the database to `file` and other programs.
const APPLICATION_ID: i64 = 0x5656_4d31;

/// The format of the rows. A change that an older version would misread raises it, as does a new table.
/// [`SCHEMAS`] has the statements that bring a file from each format to the next.
const USER_VERSION: i64 = SCHEMAS.len() as i64;

/// Creates the tables of a new database, and brings one of an older format up to date. Fails if it is a
/// database of another program or of a newer format.
pub(super) fn prepare(path: &Path, connection: &Connection) -> Result<Provenance, OpenError> {
    let sqlite = |cause| of_sqlite(path, cause);
    // Before any change, even of the journal mode: another program's database is not changed.
    let found = {
        // One consistent view: another process may be creating the tables.
        let view = connection.unchecked_transaction().map_err(sqlite)?;
        format(path, &view)?
    };
    if connection.is_readonly(rusqlite::MAIN_DB).map_err(sqlite)? {
        return Err(OpenError::ReadOnlyFile(path.to_owned()));
    }
    keep_log(path, connection)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(sqlite)?;
    // macOS needs it for a sync that reaches the disk; elsewhere it has no effect.
    connection.pragma_update(None, "fullfsync", true).map_err(sqlite)?;
    if found < SCHEMAS.len() { complete(path, connection) } else { Ok(Provenance::Existing) }
}

/// Checks that a database that is opened read-only has the format that this driver writes.
pub(super) fn check(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let view = connection.unchecked_transaction().map_err(|cause| of_sqlite(path, cause))?;
    if format(path, &view)? == SCHEMAS.len() {
        return Ok(());
    }
    Err(OpenError::ReadOnlyFile(path.to_owned()))
}

/// Returns how many of the [`SCHEMAS`] it has; 0 if it is new. Call it within a transaction.
fn format(path: &Path, view: &Connection) -> Result<usize, OpenError> {
    let number =
        |sql| view.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(|cause| of_sqlite(path, cause));
    let application = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    match (application, version) {
        (0, 0) if tables == 0 => Ok(0),
        (APPLICATION_ID, found @ 1..=USER_VERSION) => Ok(found as usize),
        (APPLICATION_ID, found) if found > USER_VERSION => {
            Err(OpenError::Newer { path: path.to_owned(), found, known: USER_VERSION })
        }
        _ => Err(OpenError::OfAnotherProgram(path.to_owned())),
    }
}

/// Applies the missing schemas in one transaction. Of several processes the first applies them. Processes of
/// an older version that have the file open continue: the tables that they use do not change.
fn complete(path: &Path, connection: &Connection) -> Result<Provenance, OpenError> {
    let sqlite = |cause| of_sqlite(path, cause);
    let transaction =
        rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate).map_err(sqlite)?;
    let found = format(path, &transaction)?;
    if found < SCHEMAS.len() {
        for schema in SCHEMAS.iter().skip(found) {
            transaction.execute_batch(schema).map_err(sqlite)?;
        }
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(sqlite)?;
        transaction.pragma_update(None, "user_version", USER_VERSION).map_err(sqlite)?;
    }
    transaction.commit().map_err(sqlite)?;
    Ok(if found == 0 { Provenance::Created } else { Provenance::Existing })
}

/// Turns on the write-ahead log, which stays on. While another process reads or writes, SQLite does not wait
/// here, because two processes could wait for each other.
fn keep_log(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let mode = connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))
        .map_err(|error| of_sqlite(path, error))?;
    if mode == "wal" { Ok(()) } else { Err(OpenError::NoWriteAheadLog { path: path.to_owned(), mode }) }
}
