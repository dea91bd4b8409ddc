//! What is sent and answered: [`Statement`], and [`Answer`] with its [`Row`]s.
//!
//! A statement is prepared, and its values go beside it; in a message of several, they stand in the text. Answers
//! are text, as the simple protocol has them.

use super::errors::Damaged;
use ielections::Ttl;
use std::{fmt, fmt::Write as _, time::Duration};
use tokio_postgres::{SimpleQueryMessage, types::ToSql};

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
