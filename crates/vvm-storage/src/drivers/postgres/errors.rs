//! Which error of the database or of its client library is which error of the contract: the table in the
//! driver's documentation, as code.

use crate::open_error::OpenError;
use ielections::{ReadError, Ttl, WriteError};
use std::time::Duration;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// A request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DriverError {
    /// No connection could be made: nothing was sent.
    #[error(transparent)]
    NotConnected(#[from] OpenError),
    /// The server rolled the transaction back, and it may succeed later.
    #[error("PostgreSQL rolled it back: {0}")]
    RolledBack(String),
    /// The server rolled the transaction back, and so it will until an operator acts.
    #[error("PostgreSQL refuses it: {0}. Check grants and schema")]
    Refused(String),
    /// Schema or tables are not there. They were when the storage was opened.
    #[error("the schema is gone: find out who dropped it before `vvm init-storage` creates it again ({0})")]
    NoSchema(String),
    /// It may have been applied.
    #[error("PostgreSQL did not answer whether it was applied: {0}")]
    Unanswered(String),
    /// It was applied here. Whether a standby has it is unknown.
    #[error("committed, but the wait for the synchronous standby was cancelled: {0}")]
    NotReplicated(String),
    /// The server has another history than the one that the caller's view is of.
    #[error(
        "the database was promoted, restored or created anew: another leader may be at work. The slot can be \
         claimed again after the largest TTL"
    )]
    OtherHistory,
    /// A row makes no sense.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The claim's TTL is beyond the bound that is waited for after a fail-over.
    #[error(
        "a TTL of {ttl} is longer than this storage allows, {most}: choose a shorter one, or run `vvm \
         init-storage --storage URL --max-ttl {ttl}`"
    )]
    TtlTooLong {
        /// The claim's.
        ttl: Ttl,
        /// The bound.
        most: Ttl,
    },
    /// The claim's epoch would be far from those that the server makes after a fail-over.
    #[error(
        "this machine's clock is {:.1} h {direction} the server's: epochs would not rise after a fail-over. \
         Correct the clock that is wrong", difference.as_secs_f64() / 3600.0
    )]
    ClockIsFar {
        /// Between the two clocks.
        difference: Duration,
        /// How this machine's clock is to the server's.
        direction: &'static str,
    },
    /// The handle was closed.
    #[error(transparent)]
    Closed(#[from] crate::drivers::closed::Closed),
}

/// A row that this driver never wrote.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "schema sysvvm has a row that no election wrote: {0}. Stop all candidates, and find out what writes there"
)]
pub(super) struct Damaged(String);

impl Damaged {
    pub(super) fn of(what: impl ToString) -> Self {
        Self(what.to_string())
    }

    /// A refusal although what stands is what was expected.
    pub(super) fn not_shown() -> Self {
        Self::of("a write was refused, and no row is in its way")
    }
}

impl DriverError {
    /// (I7) What is not certain is unknown, error codes that later versions add included.
    pub(super) fn of(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(error) => Self::of_server(error),
            None => Self::Unanswered(described(error)),
        }
    }

    /// An error of severity ERROR ends the one transaction that a request is, before its commit. FATAL ends
    /// the connection, and PANIC the server: after the commit, perhaps. A pooler reports a server that it
    /// lost as FATAL.
    fn of_server(error: &DbError) -> Self {
        let text = format!("{} ({})", error.message(), error.code().code());
        if error.parsed_severity() != Some(Severity::Error) {
            return Self::Unanswered(text);
        }
        let code = error.code();
        if [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(code) {
            return Self::NoSchema(text);
        }
        match code.code().get(..2) {
            // A pooler or a server that lost a connection of its own: the commit may have gone over it.
            // 40003: whether the statement was completed is not known.
            Some("08") => Self::Unanswered(text),
            _ if *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN => Self::Unanswered(text),
            // Wrong data, wrong statement, no permission, a feature that is not there.
            Some("0A" | "22" | "23" | "28" | "42") => Self::Refused(text),
            _ => Self::RolledBack(text),
        }
    }

    /// Whether the server may be asked again on the same connection.
    pub(super) fn leaves_connection_usable(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::NoSchema(_))
    }

    pub(super) fn of_write(self) -> WriteError {
        match self {
            Self::NotConnected(cause) if cause.is_passing() => WriteError::NotApplied(cause.into()),
            Self::RolledBack(_) => WriteError::NotApplied(self.into()),
            Self::Unanswered(_) | Self::NotReplicated(_) => WriteError::Unknown(self.into()),
            Self::OtherHistory | Self::NoSchema(_) => WriteError::Replaced(self.into()),
            // A damaged row comes with a refusal alone.
            Self::NotConnected(_)
            | Self::Refused(_)
            | Self::Damaged(_)
            | Self::TtlTooLong { .. }
            | Self::ClockIsFar { .. }
            | Self::Closed(_) => WriteError::Fatal(self.into()),
        }
    }

    /// Of a request while a storage is opened or created.
    pub(super) fn of_opening(self) -> OpenError {
        match self {
            Self::NotConnected(error) => error,
            Self::Refused(_) | Self::NoSchema(_) | Self::Damaged(_) => OpenError::refused(self.to_string()),
            other => OpenError::passing(other.to_string()),
        }
    }

    /// Of a request before a write that was then not sent.
    pub(super) fn of_unsent(self) -> WriteError {
        match self.of_write() {
            WriteError::Unknown(cause) | WriteError::Replaced(cause) => WriteError::NotApplied(cause),
            error => error,
        }
    }

    pub(super) fn of_read(self) -> ReadError {
        match self.of_write() {
            WriteError::Fatal(cause) => ReadError::Fatal(cause),
            WriteError::Replaced(cause) => ReadError::Replaced(cause),
            WriteError::NotApplied(cause) | WriteError::Unknown(cause) => ReadError::Unavailable(cause),
        }
    }
}

/// An error of the client library and its causes: the outermost alone says little.
pub(super) fn described(error: &(dyn std::error::Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
