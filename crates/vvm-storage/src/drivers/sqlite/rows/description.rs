//! What a database says of itself.

use super::{super::errors::DriverError, Rows};
use crate::Description;

/// What `PRAGMA synchronous` says by numbers.
const SYNCHRONOUS: [&str; 4] = ["off", "normal", "full", "extra"];

impl Rows<'_> {
    /// Library, journal and syncs.
    pub(in super::super) fn describe(&self) -> Result<Description, DriverError> {
        let journal: String = self.connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        let synchronous: i64 = self.connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
        let synchronous = usize::try_from(synchronous).ok().and_then(|number| SYNCHRONOUS.get(number));
        Ok(Description::of(format!("SQLite {}", rusqlite::version()))
            .with("journal mode", journal)
            .with("synchronous", synchronous.unwrap_or(&"unknown")))
    }
}
