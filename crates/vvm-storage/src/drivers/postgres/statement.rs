//! A [`Statement`] is prepared, and its values go beside it; in a message of several, they stand in the text. Answers
//! are text, as the simple protocol has them.

use crate::drivers::sql::answer::{Row, StatementResult, StatementResults, to_hex};
use std::fmt;
use tokio_postgres::{SimpleQueryMessage, types::ToSql};

/// A statement with the places `$1`, `$2` and so on for its values. Displayed, it has them in their places.
#[derive(Debug)]
pub(crate) struct Statement<'a> {
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

/// Bytes in a statement. By `decode` and not as a literal of `bytea`, whose backslash depends on the settings of the server.
pub(super) fn hex(bytes: &[u8]) -> String {
    format!("decode('{}', 'hex')", to_hex(bytes))
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(Some(bytes)) => out.write_str(&hex(bytes)),
            Self::Number(Some(number)) => write!(out, "'{number}'::bigint"),
            Self::Bytes(None) | Self::Number(None) => out.write_str("NULL"),
            Self::Keys(keys) => {
                let keys: Vec<String> = keys.iter().map(|key| hex(key)).collect();
                write!(out, "ARRAY[{}]::bytea[]", keys.join(", "))
            }
        }
    }
}

pub(super) fn answer(messages: Vec<SimpleQueryMessage>) -> StatementResults {
    let mut statements = vec![StatementResult::default()];
    for message in messages {
        let Some(last) = statements.last_mut() else { break };
        match message {
            SimpleQueryMessage::Row(row) => {
                let columns = (0..row.len()).map(|column| row.get(column).map(str::to_owned));
                last.rows.push(Row::hex(columns));
            }
            SimpleQueryMessage::CommandComplete(affected) => {
                last.affected = affected;
                statements.push(StatementResult::default());
            }
            _ => {}
        }
    }
    // A statement that was not completed is none.
    statements.pop();
    StatementResults(statements)
}

/// Of one prepared statement, all of whose columns are text.
pub(super) fn answer_of_rows(
    rows: Vec<tokio_postgres::Row>,
    affected: u64,
) -> Result<StatementResults, tokio_postgres::Error> {
    let row = |row: &tokio_postgres::Row| {
        let columns = (0..row.len()).map(|column| row.try_get::<_, Option<String>>(column));
        Ok::<_, tokio_postgres::Error>(Row::hex(columns.collect::<Result<Vec<_>, _>>()?))
    };
    let rows = rows.iter().map(row).collect::<Result<_, _>>()?;
    Ok(StatementResults(vec![StatementResult { rows, affected }]))
}

#[cfg(test)]
mod tests {
    use super::*;

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
