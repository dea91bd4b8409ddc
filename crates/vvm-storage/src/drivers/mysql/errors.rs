//! Which error of the database is which error of the contract: the table in the driver's documentation, as code. Also what
//! is answered: [`Answer`] with its [`Row`]s.

use crate::{
    drivers::{clocks::ClockIsFar, errors},
    opening::OpenError,
};
use ielections::{ReadError, Ttl, WriteError};
use std::{
    fmt::{self, Write as _},
    io,
    time::Duration,
};

/// A statement that the server refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text} ({code})")]
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) text: String,
}

/// A request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DriverError {
    /// No connection could be made: nothing was sent.
    #[error(transparent)]
    NotConnected(#[from] OpenError),
    /// A login that can't be completed. Only while a connection is made.
    #[error("{0}")]
    Login(String),
    /// The connection broke. While a connection is made, nothing was sent.
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    /// Nothing was written, and a later attempt may succeed.
    #[error("the database did not carry it out: {0}")]
    RolledBack(String),
    /// Nothing was written, and nothing will be until an operator acts.
    #[error("the database refuses it: {0}. Check grants and tables")]
    Refused(String),
    /// The tables are not there. They were when the storage was opened.
    #[error(
        "the tables are gone: find out who dropped them before `vvm init-storage` creates them again ({0})"
    )]
    NoTables(String),
    /// It may have been applied.
    #[error("the database did not answer whether it was applied: {0}")]
    Unanswered(String),
    /// The server has another history than the one that the caller's view is of.
    #[error(
        "the database failed over, was restored or created anew: another leader may be at work. The slot can be \
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
    #[error(transparent)]
    ClockIsFar(#[from] ClockIsFar),
    /// The handle was closed.
    #[error(transparent)]
    Closed(#[from] errors::Closed),
}

/// A row that this driver never wrote.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a table sysvvm_… has a row that no election wrote: {0}. Stop all candidates, and find out what writes there"
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

/// (I7) What is not certain is unknown, codes that later versions add included.
impl From<Refusal> for DriverError {
    fn from(refusal: Refusal) -> Self {
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
            // No permission, an unknown column, wrong syntax, a value that does not fit, a message that is too long, a
            // binary log without rows.
            1044 | 1045 | 1054 | 1064 | 1142 | 1143 | 1153 | 1227 | 1264 | 1406 | 1665 => Self::Refused(text),
            1049 | 1146 => Self::NoTables(text),
            _ => Self::Unanswered(text),
        }
    }
}

impl DriverError {
    pub(super) fn of_write(self) -> WriteError {
        match self {
            Self::NotConnected(cause) if cause.is_passing() => WriteError::NotApplied(cause.into()),
            Self::RolledBack(_) => WriteError::NotApplied(self.into()),
            Self::Unanswered(_) | Self::Broken(_) => WriteError::Unknown(self.into()),
            Self::OtherHistory | Self::NoTables(_) => WriteError::Replaced(self.into()),
            // A damaged row comes with a refusal alone.
            Self::NotConnected(_)
            | Self::Login(_)
            | Self::Refused(_)
            | Self::Damaged(_)
            | Self::TtlTooLong { .. }
            | Self::ClockIsFar(_)
            | Self::Closed(_) => WriteError::Fatal(self.into()),
        }
    }

    /// Of a request while a storage is opened or created.
    pub(super) fn of_opening(self) -> OpenError {
        match self {
            Self::NotConnected(error) => error,
            Self::Login(_) | Self::Refused(_) | Self::NoTables(_) | Self::Damaged(_) => {
                OpenError::refused(self.to_string())
            }
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
        errors::of_read(self.of_write())
    }
}

/// Bytes in a statement.
pub(super) struct Hex<'a>(pub(super) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        out.write_str("x'")?;
        for byte in self.0 {
            out.write_char(DIGITS[usize::from(byte >> 4)].into())?;
            out.write_char(DIGITS[usize::from(byte & 0xf)].into())?;
        }
        out.write_str("'")
    }
}

/// What a message was answered: for each of its statements rows, and how many rows it showed, or met its condition.
#[derive(Debug)]
pub(super) struct Answer(pub(super) Vec<Answered>);

#[derive(Default, Debug)]
pub(super) struct Answered {
    pub(super) rows: Vec<Row>,
    pub(super) affected: u64,
}

impl Answer {
    /// The first row of a statement, counted from 0.
    pub(super) fn row(&self, statement: usize) -> Option<&Row> {
        self.rows(statement).first()
    }

    pub(super) fn rows(&self, statement: usize) -> &[Row] {
        self.0.get(statement).map_or(&[], |statement| &statement.rows)
    }

    /// The rows of a statement alone.
    pub(super) fn into_rows(mut self, statement: usize) -> Vec<Row> {
        self.0.get_mut(statement).map(|statement| std::mem::take(&mut statement.rows)).unwrap_or_default()
    }

    pub(super) fn affected(&self, statement: usize) -> u64 {
        self.0.get(statement).map_or(0, |statement| statement.affected)
    }

    /// How many statements were answered.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The columns of a row: numbers as digits, bytes as they are.
#[derive(Debug)]
pub(super) struct Row(pub(super) Vec<Option<Vec<u8>>>);

impl Row {
    pub(super) fn bytes(&self, column: usize) -> Result<&[u8], Damaged> {
        let missing = || Damaged::of(format!("column {} is null where others are not", column + 1));
        self.0.get(column).and_then(Option::as_deref).ok_or_else(missing)
    }

    pub(super) fn text(&self, column: usize) -> Result<&str, Damaged> {
        str::from_utf8(self.bytes(column)?).map_err(Damaged::of)
    }

    pub(super) fn is_null(&self, column: usize) -> bool {
        self.0.get(column).is_none_or(Option::is_none)
    }

    pub(super) fn number(&self, column: usize) -> Result<u64, Damaged> {
        self.text(column)?.parse().map_err(Damaged::of)
    }

    pub(super) fn is_true(&self, column: usize) -> Result<bool, Damaged> {
        Ok(self.bytes(column)? == b"1")
    }
}

pub(super) fn ttl(nanos: u64) -> Result<Ttl, Damaged> {
    Ttl::new(Duration::from_nanos(nanos)).map_err(Damaged::of)
}

pub(super) fn nanos(ttl: Ttl) -> u64 {
    // At most 24 h, far within 63 bits.
    ttl.get().as_nanos() as u64
}
