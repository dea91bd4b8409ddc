//! The description of a database, for `vvm doctor`.

use super::{super::errors::DriverError, Rows};
use crate::Description;

/// The names of the numbers of `PRAGMA synchronous`.
const SYNCHRONOUS: [&str; 4] = ["off", "normal", "full", "extra"];

impl Rows<'_> {
    /// Returns library, journal mode and syncs.
    pub(in super::super) fn describe(&self) -> Result<Description, DriverError> {
        let journal: String = self.connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        let synchronous: i64 = self.connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
        let synchronous = usize::try_from(synchronous).ok().and_then(|number| SYNCHRONOUS.get(number));
        Ok(Description::of(format!("SQLite {}", rusqlite::version()))
            .with("journal mode", journal)
            .with("synchronous", synchronous.unwrap_or(&"unknown")))
    }
}
