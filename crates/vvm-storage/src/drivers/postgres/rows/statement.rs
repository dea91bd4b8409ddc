//! [`Statement`]: prepared, its values go beside it; in a message of several, they stand in the text.

use super::Hex;
use std::fmt;
use tokio_postgres::types::ToSql;

/// A statement with the places `$1`, `$2` and so on for its values. Displayed, it has them in their places.
#[derive(Debug)]
pub(in super::super) struct Statement<'a> {
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
    pub(in super::super) fn text(&self) -> &str {
        &self.text
    }

    pub(in super::super) fn values(&self) -> impl ExactSizeIterator<Item = &(dyn ToSql + Sync)> {
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
