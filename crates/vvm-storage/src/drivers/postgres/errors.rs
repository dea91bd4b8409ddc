use crate::drivers::sql::errors::DriverError;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// (I7) What is not certain is unknown, error codes that later versions add included.
///
/// An error of severity ERROR ends the one transaction that a request is, before its commit. FATAL ends the connection,
/// and PANIC the server: after the commit, perhaps. A pooler reports a server that it lost as FATAL.
pub(super) fn of_server(error: &DbError) -> DriverError {
    let text = format!("{} ({})", error.message(), error.code().code());
    if error.parsed_severity() != Some(Severity::Error) {
        return DriverError::Unanswered(text);
    }
    let code = error.code();
    if [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(code) {
        return DriverError::NoTables(text);
    }
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        return DriverError::Denied(text);
    }
    match code.code().get(..2) {
        // A pooler or a server that lost a connection of its own: the commit may have gone over it.
        // 40003: whether the statement was completed is not known.
        Some("08") => DriverError::Unanswered(text),
        _ if *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN => DriverError::Unanswered(text),
        // Wrong data, wrong statement, a feature that is not there.
        Some("0A" | "22" | "23" | "28" | "42") => DriverError::Refused(text),
        _ => DriverError::RolledBack(text),
    }
}
