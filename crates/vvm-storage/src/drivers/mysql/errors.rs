//! Which code of the server is which error, by the driver's table.

use crate::drivers::sql::errors::DriverError;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text} ({code})")]
pub(super) struct ServerError {
    pub(super) code: u16,
    pub(super) text: String,
}

/// (I7) What is not certain is unknown, codes that later versions add included.
impl From<ServerError> for DriverError {
    fn from(refusal: ServerError) -> Self {
        let text = refusal.to_string();
        match refusal.code {
            // Lock wait timeout: the statement was undone, and the rest of its transaction is, with the connection.
            // Deadlock: the transaction was undone.
            1205 | 1213
            // Read-only: the server, its transaction, InnoDB.
            | 1290 | 1792 | 1836
            // The table, the disk or the list of transactions is full.
            | 1021 | 1114 | 1637
            // Limits of the user.
            | 1203 | 1226 => Self::RolledBack(text),
            // No permission: for the database, a table, a column, a setting.
            1044 | 1142 | 1143 | 1227 => Self::Denied(text),
            // A wrong login, an unknown column, wrong syntax, a value that does not fit, a message that is too long, a
            // binary log without rows.
            1045 | 1054 | 1064 | 1153 | 1264 | 1406 | 1665 => Self::Refused(text),
            1049 | 1146 => Self::NoTables(text),
            _ => Self::Unanswered(text),
        }
    }
}
