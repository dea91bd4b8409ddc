//! Whose database it is, in which format, and how it is to be kept.

use super::{super::rows::SCHEMA, OpenError, PATIENCE, error::of_sqlite};
use clock::SystemClock;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use std::{path::Path, thread, time::Duration};

/// "VVM1": what `file` and other programs know the database by.
const APPLICATION_ID: i64 = 0x5656_4d31;

/// The format of the rows. A change that an older version would misread raises it.
const USER_VERSION: i64 = 1;

/// Checks that the database is ours, or nobody's and then makes it ours.
pub(super) fn prepare(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let sqlite = |cause| of_sqlite(path, cause);
    // Before anything is changed, the way of keeping a log included: a database of somebody else stays as it is.
    let is_new = {
        // One view of it all, while somebody else may be creating it.
        let view = connection.unchecked_transaction().map_err(sqlite)?;
        is_new(path, &view)?
    };
    if connection.is_readonly(rusqlite::MAIN_DB).map_err(sqlite)? {
        return Err(OpenError::ReadOnlyFile(path.to_owned()));
    }
    keep_log(path, connection)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(sqlite)?;
    // Where a sync to disk is asked for in a special way (macOS); without effect elsewhere.
    connection.pragma_update(None, "fullfsync", true).map_err(sqlite)?;
    if is_new {
        create(path, connection)?;
    }
    Ok(())
}

/// Whether nobody has used this database yet. Within a transaction.
fn is_new(path: &Path, view: &Connection) -> Result<bool, OpenError> {
    let number =
        |sql| view.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(|cause| of_sqlite(path, cause));
    let application = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    match (application, version) {
        (0, 0) if tables == 0 => Ok(true),
        (APPLICATION_ID, USER_VERSION) => Ok(false),
        (APPLICATION_ID, found) if found > USER_VERSION => {
            Err(OpenError::Newer { path: path.to_owned(), found, known: USER_VERSION })
        }
        _ => Err(OpenError::OfAnotherProgram(path.to_owned())),
    }
}

/// Several processes may create the same file: the first makes it, the others find it made.
fn create(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let sqlite = |cause| of_sqlite(path, cause);
    let transaction =
        rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate).map_err(sqlite)?;
    if is_new(path, &transaction)? {
        transaction.execute_batch(SCHEMA).map_err(sqlite)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(sqlite)?;
        transaction.pragma_update(None, "user_version", USER_VERSION).map_err(sqlite)?;
    }
    transaction.commit().map_err(sqlite)
}

/// Turns on the write-ahead log. It stays on: this changes something only once.
fn keep_log(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let give_up_at = SystemClock::read().after(PATIENCE);
    loop {
        let mode =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => return Err(OpenError::NoWriteAheadLog { path: path.to_owned(), mode }),
            // Two that change the mode at once are told so without any waiting (they could wait for each other).
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && SystemClock::read() < give_up_at =>
            {
                thread::park_timeout(Duration::from_millis(1));
            }
            Err(error) => return Err(of_sqlite(path, error)),
        }
    }
}
