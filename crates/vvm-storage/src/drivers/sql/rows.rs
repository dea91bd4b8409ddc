//! Answers, and how their rows are decoded.

use super::errors::{DecodeError, DriverError};
use crate::step::{Columns, RecordColumns};
use ielections::{Document, DocumentId, DocumentVersion, FenceState, Page, Slot, Vacant};
use std::time::Duration;

/// The longest answer to a message. A page of documents has 2 MiB, and the slots of a name less.
const LONGEST_ANSWER: usize = 32 << 20;

/// What a packet or a row counts at least: a server could fill the memory with empty ones.
const LEAST: usize = 64;

#[derive(Debug)]
pub(crate) struct AnswerLimit(usize);

impl AnswerLimit {
    pub(crate) fn new() -> Self {
        Self(LONGEST_ANSWER)
    }

    pub(crate) fn count(&mut self, bytes: usize) -> Result<(), DriverError> {
        let left = self.0.checked_sub(bytes.max(LEAST));
        self.0 = left.ok_or_else(|| {
            DriverError::Unanswered(format!("the answer has more than {LONGEST_ANSWER} bytes"))
        })?;
        Ok(())
    }
}

/// For each statement of a message rows, and how many rows it showed or changed, or how many met its condition.
#[derive(Default, Debug)]
pub(crate) struct StatementResults(pub(crate) Vec<StatementResult>);

#[derive(Default, Debug)]
pub(crate) struct StatementResult {
    pub(crate) rows: Vec<Row>,
    pub(crate) affected: u64,
}

impl StatementResults {
    pub(crate) fn row(&self, statement: usize) -> Option<&Row> {
        self.rows(statement).first()
    }

    pub(crate) fn rows(&self, statement: usize) -> &[Row] {
        self.0.get(statement).map_or(&[], |statement| &statement.rows)
    }

    pub(crate) fn row_from_end(&self, statement: usize) -> Option<&Row> {
        self.row(self.0.len().checked_sub(statement + 1)?)
    }

    pub(crate) fn into_rows(mut self, statement: usize) -> Vec<Row> {
        self.0.get_mut(statement).map(|statement| std::mem::take(&mut statement.rows)).unwrap_or_default()
    }

    pub(crate) fn affected(&self, statement: usize) -> u64 {
        self.0.get(statement).map_or(0, |statement| statement.affected)
    }

    /// Without the statements of a frame around the others.
    pub(crate) fn within(mut self, (before, behind): (usize, usize)) -> Self {
        self.0.truncate(self.0.len().saturating_sub(behind));
        self.0.drain(..before.min(self.0.len()));
        self
    }
}

/// The columns of a row: numbers as digits, bytes as they are or in hexadecimal digits.
#[derive(Debug)]
pub(crate) struct Row {
    columns: Vec<Option<Vec<u8>>>,
    is_hex: bool,
}

impl Row {
    pub(crate) fn plain(columns: impl IntoIterator<Item = Option<Vec<u8>>>) -> Self {
        Self { columns: columns.into_iter().collect(), is_hex: false }
    }

    pub(crate) fn hex(columns: impl IntoIterator<Item = Option<String>>) -> Self {
        let columns = columns.into_iter().map(|column| column.map(String::into_bytes));
        Self { columns: columns.collect(), is_hex: true }
    }

    fn stored(&self, column: usize) -> Result<&[u8], DecodeError> {
        let missing = || DecodeError::of(format!("column {} is null where others are not", column + 1));
        self.columns.get(column).and_then(Option::as_deref).ok_or_else(missing)
    }

    pub(crate) fn bytes(&self, column: usize) -> Result<Vec<u8>, DecodeError> {
        let stored = self.stored(column)?;
        if self.is_hex { from_hex(stored) } else { Ok(stored.to_vec()) }
    }

    pub(crate) fn text(&self, column: usize) -> Result<&str, DecodeError> {
        str::from_utf8(self.stored(column)?).map_err(DecodeError::of)
    }

    pub(crate) fn is_null(&self, column: usize) -> bool {
        self.columns.get(column).is_none_or(Option::is_none)
    }

    /// A number without a sign, or the same 64 bits of one with a sign.
    pub(crate) fn number(&self, column: usize) -> Result<u64, DecodeError> {
        let text = self.text(column)?;
        text.parse().or_else(|_| text.parse().map(i64::cast_unsigned)).map_err(DecodeError::of)
    }

    pub(crate) fn is_true(&self, column: usize) -> Result<bool, DecodeError> {
        Ok(matches!(self.text(column)?, "t" | "1"))
    }
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |digit: u8| char::from(DIGITS[usize::from(digit)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}

fn from_hex(text: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.chunks(2).map(pair).collect();
    bytes.ok_or_else(|| DecodeError::of("bytes that are no hexadecimal digits"))
}

/// Columns: epoch, incarnation, number of the write, TTL, holder, count of batches.
pub(crate) fn fence(row: Option<&Row>) -> Result<FenceState, DecodeError> {
    let Some(row) = row else {
        let slot = Slot::Vacant(Vacant { last_epoch: None });
        return Ok(FenceState { slot, last: DocumentVersion::NONE });
    };
    let (epoch, last) = (row.number(0)?, DocumentVersion::from_stored(row.number(5)?));
    if row.is_null(1) {
        let slot = Columns { epoch, record: None }.slot().map_err(DecodeError::of)?;
        return Ok(FenceState { slot, last });
    }
    let (incarnation, holder) = (row.bytes(1)?, row.bytes(4)?);
    let (write, ttl_nanos) = (row.number(2)?, row.number(3)?);
    let record = RecordColumns { incarnation: &incarnation, write, ttl_nanos, holder: &holder };
    Ok(FenceState { slot: Columns { epoch, record: Some(record) }.slot().map_err(DecodeError::of)?, last })
}

pub(crate) fn slot(row: Option<&Row>) -> Result<Slot, DecodeError> {
    Ok(fence(row)?.slot)
}

pub(crate) fn peeked(row: &Row) -> Result<(Vec<u8>, Slot), DecodeError> {
    Ok((row.bytes(6)?, slot(Some(row))?))
}

pub(crate) fn age(row: &Row) -> Result<(Vec<u8>, Duration), DecodeError> {
    Ok((row.bytes(0)?, Duration::from_millis(row.number(1)?)))
}

pub(crate) fn shown(row: &Row) -> Result<Document, DecodeError> {
    let id = DocumentId::new(row.bytes(0)?).map_err(DecodeError::of)?;
    let version = DocumentVersion::from_stored(row.number(1)?);
    Ok(Document { id, version, body: row.bytes(2)?.into() })
}

pub(crate) fn shown_page(rows: &[Row]) -> Result<Page, DecodeError> {
    let documents = rows.iter().map(shown).collect::<Result<Vec<_>, _>>()?;
    let found = rows.first().map_or(Ok(0), |row| row.number(3))?;
    let is_whole = usize::try_from(found).is_ok_and(|found| found <= documents.len());
    let next = documents.last().filter(|_| !is_whole).map(|last| last.id.clone());
    Ok(Page { documents, next })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_survive_their_hexadecimal_form(bytes: Vec<u8>) {
            prop_assert_eq!(from_hex(to_hex(&bytes).as_bytes()).unwrap(), bytes);
        }
    }

    #[test]
    fn damaged_digits_are_refused() {
        for text in ["0", "0g", "+1", "é"] {
            assert!(from_hex(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn frame_is_left_out_and_statements_are_counted_from_both_ends() {
        let answer = || {
            let answered = |affected| StatementResult { rows: Vec::new(), affected };
            StatementResults([1, 2, 3, 4].map(answered).into())
        };
        let within = answer().within((1, 1));
        assert_eq!((within.affected(0), within.affected(1), within.affected(2)), (2, 3, 0));
        assert!(answer().within((3, 3)).0.is_empty());
        assert!(answer().row_from_end(4).is_none());
    }

    #[test]
    fn damaged_slot_is_not_a_vacancy() {
        let hex = |columns: [Option<&str>; 6]| {
            super::slot(Some(&Row::hex(columns.map(|column| column.map(str::to_owned)))))
        };
        let plain = |columns: [Option<&[u8]>; 6]| {
            super::slot(Some(&Row::plain(columns.map(|column| column.map(<[u8]>::to_vec)))))
        };
        let held = [
            Some("5"),
            Some("07070707070707070707070707070707"),
            Some("-1"),
            Some("1000000000"),
            Some("61"),
            Some("0"),
        ];
        let Ok(Slot::Held { entry, proven_age: None }) = hex(held) else { panic!("not held") };
        assert_eq!((entry.epoch.get(), entry.version.write), (5, u64::MAX));
        let bytes = [
            Some(&b"5"[..]),
            Some(&[7; 16]),
            Some(b"18446744073709551615"),
            Some(b"1000000000"),
            Some(b"a"),
            Some(b"0"),
        ];
        assert_eq!(plain(bytes), hex(held));
        let vacant = Slot::Vacant(Vacant { last_epoch: Some(entry.epoch) });
        assert_eq!(hex([held[0], None, None, None, None, held[5]]), Ok(vacant));
        for (column, value) in [
            (0, Some("0")),
            (0, None),
            (1, Some("07")),
            (2, None),
            (3, None),
            (3, Some("-1")),
            (4, Some("ff")),
            (5, None),
        ] {
            let mut damaged = held;
            damaged[column] = value;
            assert!(hex(damaged).is_err(), "column {column}: {value:?}");
        }
    }
}
