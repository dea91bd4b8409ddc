//! Which error of the database or of its client library is which error of the contract: the table in the
//! driver's documentation, as code. Also what is sent and answered: [`Statement`], and [`Answer`] with its [`Row`]s.
//!
//! A statement is prepared, and its values go beside it; in a message of several, they stand in the text. Answers
//! are text, as the simple protocol has them.

use crate::{
    drivers::{clocks::ClockIsFar, errors},
    opening::OpenError,
};
use ielections::{ReadError, Ttl, WriteError};
use std::{
    fmt::{self, Write as _},
    time::Duration,
};
use tokio_postgres::{
    SimpleQueryMessage,
    error::{DbError, Severity, SqlState},
    types::ToSql,
};

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
    #[error(transparent)]
    ClockIsFar(#[from] ClockIsFar),
    /// The handle was closed.
    #[error(transparent)]
    Closed(#[from] errors::Closed),
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
            None => Self::Unanswered(errors::described(error)),
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
            | Self::ClockIsFar(_)
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
        errors::of_read(self.of_write())
    }
}

/// Bytes in a statement. By `decode` and not as a literal of `bytea`, whose backslash depends on the settings
/// of the server.
pub(super) struct Hex<'a>(pub(super) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        out.write_str("decode('")?;
        for byte in self.0 {
            out.write_char(DIGITS[usize::from(byte >> 4)].into())?;
            out.write_char(DIGITS[usize::from(byte & 0xf)].into())?;
        }
        out.write_str("', 'hex')")
    }
}

/// The bytes of hexadecimal digits.
fn from_hex(text: &str) -> Result<Vec<u8>, Damaged> {
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
    bytes.ok_or_else(|| Damaged::of("bytes that are no hexadecimal digits"))
}

/// A statement with the places `$1`, `$2` and so on for its values. Displayed, it has them in their places.
#[derive(Debug)]
pub(super) struct Statement<'a> {
    text: String,
    values: Vec<Value<'a>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value<'a> {
    Bytes(Option<&'a [u8]>),
    Number(Option<i64>),
    Keys(Vec<&'a [u8]>),
}

impl<'a> Statement<'a> {
    pub(super) fn new(text: String, values: impl IntoIterator<Item = Value<'a>>) -> Self {
        Self { text, values: values.into_iter().collect() }
    }

    /// Without the values: the same for all statements of a kind.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn values(&self) -> impl ExactSizeIterator<Item = &(dyn ToSql + Sync)> {
        self.values.iter().map(|value| match value {
            Value::Bytes(bytes) => bytes as &(dyn ToSql + Sync),
            Value::Number(number) => number,
            Value::Keys(keys) => keys,
        })
    }
}

impl fmt::Display for Statement<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.text.split('$');
        out.write_str(parts.next().unwrap_or_default())?;
        for part in parts {
            let digits = part.len() - part.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
            let (number, rest) = part.split_at(digits);
            let value = number.parse::<usize>().ok().and_then(|number| self.values.get(number - 1));
            write!(out, "{}{rest}", value.ok_or(fmt::Error)?)?;
        }
        Ok(())
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(Some(bytes)) => Hex(bytes).fmt(out),
            Self::Number(Some(number)) => write!(out, "'{number}'::bigint"),
            Self::Bytes(None) | Self::Number(None) => out.write_str("NULL"),
            Self::Keys(keys) => {
                let keys: Vec<String> = keys.iter().map(|key| Hex(key).to_string()).collect();
                write!(out, "ARRAY[{}]::bytea[]", keys.join(", "))
            }
        }
    }
}

/// What a request was answered: for each of its statements rows, and how many rows it showed or changed.
#[derive(Debug)]
pub(super) struct Answer(Vec<Answered>);

#[derive(Default, Debug)]
struct Answered {
    rows: Vec<Row>,
    affected: u64,
}

impl Answer {
    pub(super) fn of(messages: Vec<SimpleQueryMessage>) -> Self {
        let mut statements = vec![Answered::default()];
        for message in messages {
            let Some(last) = statements.last_mut() else { break };
            match message {
                SimpleQueryMessage::Row(row) => {
                    let columns = (0..row.len()).map(|column| row.get(column).map(str::to_owned));
                    last.rows.push(Row(columns.collect()));
                }
                SimpleQueryMessage::CommandComplete(affected) => {
                    last.affected = affected;
                    statements.push(Answered::default());
                }
                _ => {}
            }
        }
        Self(statements)
    }

    /// Of one prepared statement, all of whose columns are text.
    pub(super) fn of_rows(
        rows: Vec<tokio_postgres::Row>,
        affected: u64,
    ) -> Result<Self, tokio_postgres::Error> {
        let row = |row: &tokio_postgres::Row| {
            let columns = (0..row.len()).map(|column| row.try_get::<_, Option<String>>(column));
            Ok::<_, tokio_postgres::Error>(Row(columns.collect::<Result<_, _>>()?))
        };
        let rows = rows.iter().map(row).collect::<Result<_, _>>()?;
        Ok(Self(vec![Answered { rows, affected }]))
    }

    /// The first row of a statement, counted from 0.
    pub(super) fn row(&self, statement: usize) -> Option<&Row> {
        self.rows(statement).first()
    }

    /// The rows of a statement alone.
    pub(super) fn into_rows(mut self, statement: usize) -> Vec<Row> {
        self.0.get_mut(statement).map(|statement| std::mem::take(&mut statement.rows)).unwrap_or_default()
    }

    pub(super) fn rows(&self, statement: usize) -> &[Row] {
        self.0.get(statement).map_or(&[], |statement| &statement.rows)
    }

    /// How many rows a statement showed or changed.
    pub(super) fn affected(&self, statement: usize) -> u64 {
        self.0.get(statement).map_or(0, |statement| statement.affected)
    }
}

/// The columns of a row, as text.
#[derive(Debug)]
pub(super) struct Row(Vec<Option<String>>);

impl Row {
    #[cfg(test)]
    pub(super) fn of<const N: usize>(columns: [Option<&str>; N]) -> Self {
        Self(columns.map(|column| column.map(str::to_owned)).into())
    }

    pub(super) fn text(&self, column: usize) -> Result<&str, Damaged> {
        let missing = || Damaged::of(format!("column {} is null where others are not", column + 1));
        self.0.get(column).and_then(Option::as_deref).ok_or_else(missing)
    }

    pub(super) fn is_null(&self, column: usize) -> bool {
        self.0.get(column).is_none_or(Option::is_none)
    }

    pub(super) fn number(&self, column: usize) -> Result<i64, Damaged> {
        self.text(column)?.parse().map_err(Damaged::of)
    }

    pub(super) fn is_true(&self, column: usize) -> Result<bool, Damaged> {
        Ok(self.text(column)? == "t")
    }

    pub(super) fn bytes(&self, column: usize) -> Result<Vec<u8>, Damaged> {
        from_hex(self.text(column)?)
    }
}

pub(super) fn ttl(nanos: i64) -> Result<Ttl, Damaged> {
    Ttl::new(Duration::from_nanos(nanos.cast_unsigned())).map_err(Damaged::of)
}

pub(super) fn nanos(ttl: Ttl) -> i64 {
    // At most 24 h, far within 63 bits.
    ttl.get().as_nanos() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_survive_their_hexadecimal_form(bytes: Vec<u8>) {
            let text = Hex(&bytes).to_string();
            let digits = text.strip_prefix("decode('").and_then(|text| text.strip_suffix("', 'hex')"));
            prop_assert_eq!(from_hex(digits.unwrap()).unwrap(), bytes);
        }
    }

    #[test]
    fn damaged_digits_are_refused() {
        for text in ["0", "0g", "+1", "é"] {
            assert!(from_hex(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_stand_in_their_places() {
        let numbers = (1..=11).map(|number| Value::Number(Some(-number)));
        let statement = Statement::new("SELECT $11, $1".into(), numbers);
        assert_eq!(statement.to_string(), "SELECT '-11'::bigint, '-1'::bigint");
        let values = [Value::Bytes(None), Value::Bytes(Some(b"$2")), Value::Keys(vec![b"a", b"b"])];
        assert_eq!(
            Statement::new("$3$1 = $2".into(), values).to_string(),
            "ARRAY[decode('61', 'hex'), decode('62', 'hex')]::bytea[]NULL = decode('2432', 'hex')"
        );
    }
}
