//! Whose database it is, in which format, and how it is to be kept.

use super::{super::rows::SCHEMAS, OpenError, PATIENCE, error::of_sqlite};
use crate::Provenance;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use std::{path::Path, thread, time::Duration};
use vvm_clock::SystemClock;

/// "VVM1": what `file` and other programs know the database by.
const APPLICATION_ID: i64 = 0x5656_4d31;

/// The format of the rows. A change that an older version would misread raises it, and so does a new table:
/// then the statements that bring a file of the format before to this one stand in [`SCHEMAS`].
const USER_VERSION: i64 = SCHEMAS.len() as i64;

/// Checks that the database is ours, or nobody's and then makes it ours. One of an older format is brought to
/// this one. Says whether it was nobody's.
pub(super) fn prepare(path: &Path, connection: &Connection) -> Result<Provenance, OpenError> {
    let sqlite = |cause| of_sqlite(path, cause);
    // Before anything is changed, the way of keeping a log included: a database of somebody else stays as it
    // is.
    let found = {
        // One view of it all, while somebody else may be creating it.
        let view = connection.unchecked_transaction().map_err(sqlite)?;
        format(path, &view)?
    };
    if connection.is_readonly(rusqlite::MAIN_DB).map_err(sqlite)? {
        return Err(OpenError::ReadOnlyFile(path.to_owned()));
    }
    keep_log(path, connection)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(sqlite)?;
    // Where a sync to disk is asked for in a special way (macOS); without effect elsewhere.
    connection.pragma_update(None, "fullfsync", true).map_err(sqlite)?;
    if found < SCHEMAS.len() { complete(path, connection) } else { Ok(Provenance::Existing) }
}

/// Checks that the database is ours, and of the format that this driver writes, since it is not to be
/// written.
pub(super) fn check(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let view = connection.unchecked_transaction().map_err(|cause| of_sqlite(path, cause))?;
    if format(path, &view)? == SCHEMAS.len() {
        return Ok(());
    }
    Err(OpenError::ReadOnlyFile(path.to_owned()))
}

/// How many of the [`SCHEMAS`] it has: none if nobody has used this database yet. Within a transaction.
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

/// Creates what is missing, all or nothing. Several processes may do so to the same file: the first makes it,
/// the others find it made. One that has it open already goes on: what it knows of stays as it is.
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

/// Turns on the write-ahead log. It stays on: this changes something only once.
fn keep_log(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let give_up_at = SystemClock::read().after(PATIENCE);
    loop {
        let mode =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => return Err(OpenError::NoWriteAheadLog { path: path.to_owned(), mode }),
            // Two that change the mode at once are told so without any waiting (they could wait for each
            // other).
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
