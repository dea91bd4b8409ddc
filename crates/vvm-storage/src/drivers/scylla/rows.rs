//! The rows of slots, settings and documents, and the columns of an answer. `incarnation` is null before the first
//! leadership, empty after a release. The first batch creates a first row that is never deleted: to check static
//! columns, the server reads up to the first live row, and would otherwise read thousands of tombstones.

use super::{DecodeError, DriverError};
use crate::step::{self, RecordColumns};
use ::scylla::{
    response::query_result::QueryResult,
    value::{CqlValue, Row},
};
use bytes::Bytes;
use ielections::{Document, DocumentId, DocumentVersion, Entry, Scan, Slot, Vacant};
use std::{collections::BTreeMap, ops::Bound};

pub(super) const TABLE: &str = "sysvvm";

/// The columns in the schema: name, type, kind.
pub(super) const COLUMNS: [(&str, &str, &str); 11] = [
    ("pk", "blob", "partition_key"),
    ("cc", "blob", "clustering"),
    ("epoch", "bigint", "static"),
    ("incarnation", "blob", "static"),
    ("write", "bigint", "static"),
    ("ttl_nanos", "bigint", "static"),
    ("holder", "text", "static"),
    ("value", "blob", "regular"),
    ("last_batch", "bigint", "static"),
    ("last_batch_id", "blob", "static"),
    ("version", "bigint", "regular"),
];

#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) epoch: Option<i64>,
    pub(super) incarnation: Option<&'a [u8]>,
    pub(super) write: Option<i64>,
    pub(super) ttl_nanos: Option<i64>,
    pub(super) holder: Option<&'a str>,
}

impl<'a> Record<'a> {
    pub(super) fn of_entry(entry: &'a Entry) -> Self {
        let RecordColumns { incarnation, write, ttl_nanos, .. } = RecordColumns::new(entry);
        Self {
            epoch: Some(entry.epoch.get().cast_signed()),
            incarnation: Some(incarnation),
            write: Some(write.cast_signed()),
            ttl_nanos: Some(ttl_nanos.cast_signed()),
            holder: Some(entry.holder.as_str()),
        }
    }

    pub(super) fn of_slot(slot: &'a Slot) -> Self {
        match slot {
            Slot::Held { entry, .. } => Self::of_entry(entry),
            Slot::Vacant(Vacant { last_epoch: None }) => {
                Self { epoch: None, incarnation: None, write: None, ttl_nanos: None, holder: None }
            }
            // As `release` writes it.
            Slot::Vacant(Vacant { last_epoch: Some(epoch) }) => Self {
                epoch: Some(epoch.get().cast_signed()),
                incarnation: Some(&[]),
                write: Some(0),
                ttl_nanos: Some(0),
                holder: Some(""),
            },
        }
    }
}

/// By name: server and statement decide which columns a refusal has, and their order. Nulls are left out.
#[derive(Debug, Default)]
pub(super) struct Columns(BTreeMap<String, CqlValue>);

impl Columns {
    pub(super) fn from_result(answer: QueryResult) -> Result<Self, DriverError> {
        let rows = answer.into_rows_result().map_err(unreadable)?;
        let Some(row) = rows.maybe_first_row::<Row>().map_err(unreadable)? else {
            return Ok(Self::default());
        };
        let names = rows.column_specs().iter().map(|column| column.name().to_owned());
        Ok(Self(names.zip(row.columns).filter_map(|(name, value)| Some((name, value?))).collect()))
    }

    pub(super) fn applied(&self) -> Result<bool, DriverError> {
        match self.0.get("[applied]") {
            Some(CqlValue::Boolean(applied)) => Ok(*applied),
            other => Err(DriverError::Unreadable(
                format!("a transaction was answered with {other:?} for an outcome").into(),
            )),
        }
    }

    pub(super) fn slot(&self) -> Result<Slot, DecodeError> {
        let Some(epoch) = self.bigint("epoch")? else {
            return Ok(Slot::Vacant(Vacant { last_epoch: None }));
        };
        let epoch = epoch.cast_unsigned();
        let incarnation = self.blob("incarnation")?.ok_or_else(|| missing("incarnation"))?;
        if incarnation.is_empty() {
            return step::Columns { epoch, record: None }.slot().map_err(damaged);
        }
        let holder = match self.0.get("holder") {
            Some(CqlValue::Text(holder)) => holder.as_bytes(),
            Some(CqlValue::Empty) => b"",
            other => return Err(damaged(format!("{other:?} for a holder"))),
        };
        let number = |name: &str| self.bigint(name)?.ok_or_else(|| missing(name));
        let (write, ttl_nanos) = (number("write")?.cast_unsigned(), number("ttl_nanos")?.cast_unsigned());
        let record = RecordColumns { incarnation, write, ttl_nanos, holder };
        step::Columns { epoch, record: Some(record) }.slot().map_err(damaged)
    }

    pub(super) fn last_batch(&self) -> Result<DocumentVersion, DecodeError> {
        let number = self.bigint("last_batch")?.map(i64::cast_unsigned);
        Ok(number.map_or(DocumentVersion::NONE, DocumentVersion::from_stored))
    }

    pub(super) fn last_batch_is(&self, id: &[u8]) -> Result<bool, DecodeError> {
        Ok(self.blob("last_batch_id")? == Some(id))
    }

    pub(super) fn setting(&self) -> Result<Option<Vec<u8>>, DecodeError> {
        Ok(self.blob("value")?.map(<[u8]>::to_vec))
    }

    fn bigint(&self, name: &str) -> Result<Option<i64>, DecodeError> {
        match self.0.get(name) {
            None => Ok(None),
            Some(CqlValue::BigInt(number)) => Ok(Some(*number)),
            Some(other) => Err(damaged(format!("{other:?} in column {name}"))),
        }
    }

    fn blob(&self, name: &str) -> Result<Option<&[u8]>, DecodeError> {
        match self.0.get(name) {
            None => Ok(None),
            Some(CqlValue::Blob(bytes)) => Ok(Some(bytes)),
            Some(CqlValue::Empty) => Ok(Some(&[])),
            Some(other) => Err(damaged(format!("{other:?} in column {name}"))),
        }
    }
}

fn unreadable(cause: impl ToString) -> DriverError {
    DriverError::Unreadable(cause.to_string().into())
}

fn missing(column: &str) -> DecodeError {
    DecodeError(format!("column {column} is null where others are not"))
}

fn damaged(what: impl ToString) -> DecodeError {
    DecodeError(what.to_string())
}

/// The key of a partition's first row, and of a setting.
pub(super) const FIRST: &str = "0x00";

const DOCUMENT: u8 = 1;

const END: [u8; 1] = [DOCUMENT + 1];

pub(super) fn place(id: &[u8]) -> Vec<u8> {
    [&[DOCUMENT], id].concat()
}

pub(super) fn scanned(scan: &Scan) -> (Vec<u8>, Vec<u8>) {
    let first = match scan.start() {
        Bound::Included(id) => place(id),
        // The next larger id is this one with a zero byte appended.
        Bound::Excluded(id) => [&place(id)[..], &[0]].concat(),
        Bound::Unbounded => place(&[]),
    };
    (first, scan.end().map_or(END.to_vec(), |end| place(&end)))
}

pub(super) fn documents(answer: QueryResult) -> Result<Vec<Document>, DriverError> {
    let rows = answer.into_rows_result().map_err(unreadable)?;
    let rows = rows.rows::<(&[u8], Option<i64>, Option<&[u8]>)>().map_err(unreadable)?;
    rows.map(|row| {
        let (place, version, body) = row.map_err(unreadable)?;
        Ok(document_of(place, version, body)?)
    })
    .collect()
}

fn document_of(place: &[u8], version: Option<i64>, body: Option<&[u8]>) -> Result<Document, DecodeError> {
    let damaged = |what: &str| DecodeError(format!("{what} at {}", place.escape_ascii()));
    let id = place.strip_prefix(&[DOCUMENT]).ok_or_else(|| damaged("a row that is not a document"))?;
    let id = DocumentId::new(Bytes::copy_from_slice(id)).map_err(|_| damaged("a document without an id"))?;
    let (Some(version), Some(body)) = (version, body) else {
        return Err(damaged("a document without version or body"));
    };
    let version = DocumentVersion::from_stored(version.cast_unsigned());
    Ok(Document { id, version, body: Bytes::copy_from_slice(body) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(changes: &[(&str, Option<CqlValue>)]) -> Columns {
        let mut columns = BTreeMap::from([
            ("epoch".to_owned(), CqlValue::BigInt(5)),
            ("incarnation".to_owned(), CqlValue::Blob(vec![7; 16])),
            ("write".to_owned(), CqlValue::BigInt(-1)),
            ("ttl_nanos".to_owned(), CqlValue::BigInt(1_000_000_000)),
            ("holder".to_owned(), CqlValue::Text("host".to_owned())),
        ]);
        for (name, value) in changes {
            match value {
                Some(value) => drop(columns.insert((*name).to_owned(), value.clone())),
                None => drop(columns.remove(*name)),
            }
        }
        Columns(columns)
    }

    #[test]
    fn slot_is_read_by_name_and_a_malformed_one_is_damaged() {
        let Ok(Slot::Held { entry, proven_age: None }) = columns(&[]).slot() else { panic!("not held") };
        assert_eq!((entry.epoch.get(), entry.version.write), (5, u64::MAX));
        let released = columns(&[("incarnation", Some(CqlValue::Blob(Vec::new())))]).slot();
        assert_eq!(released, Ok(Slot::Vacant(Vacant { last_epoch: Some(entry.epoch) })));
        assert_eq!(Columns::default().slot(), Ok(Slot::Vacant(Vacant { last_epoch: None })));
        for (name, value) in [
            ("epoch", Some(CqlValue::BigInt(0))),
            ("epoch", Some(CqlValue::Int(5))),
            ("incarnation", None),
            ("incarnation", Some(CqlValue::Blob(vec![7; 15]))),
            ("write", None),
            ("ttl_nanos", None),
            ("ttl_nanos", Some(CqlValue::BigInt(-1))),
            ("holder", None),
        ] {
            assert!(columns(&[(name, value.clone())]).slot().is_err(), "{name}: {value:?}");
        }
    }

    #[test]
    fn missing_outcome_is_an_error() {
        let outcome = |value| columns(&[("[applied]", value)]).applied();
        assert!(matches!(outcome(Some(CqlValue::Boolean(true))), Ok(true)));
        assert!(matches!(outcome(Some(CqlValue::Boolean(false))), Ok(false)));
        assert!(matches!(outcome(None), Err(DriverError::Unreadable(_))));
    }

    #[test]
    fn scan_covers_exactly_its_prefix() {
        let scan = |prefix: &'static [u8], after: &'static [u8]| {
            let after = DocumentId::new(after).ok();
            scanned(&Scan { prefix: Bytes::from_static(prefix), after, limit: 1 })
        };
        assert_eq!(scan(b"", b""), (b"\x01".to_vec(), b"\x02".to_vec()));
        assert_eq!(scan(b"a", b""), (b"\x01a".to_vec(), b"\x01b".to_vec()));
        assert_eq!(scan(b"a", b"ab"), (b"\x01ab\0".to_vec(), b"\x01b".to_vec()));
        assert_eq!(scan(b"\xff", b""), (b"\x01\xff".to_vec(), b"\x02".to_vec()));
    }

    #[test]
    fn document_is_read_and_a_malformed_one_is_damaged() {
        let told = document_of(b"\x01name", Some(5), Some(b"")).unwrap();
        assert_eq!((told.id.as_bytes(), told.version.get(), &*told.body), (&b"name"[..], 5, &b""[..]));
        for (place, version, body) in [
            (&b"\x02name"[..], Some(5), Some(&b"body"[..])),
            (b"\x01", Some(5), Some(b"body")),
            (b"", Some(5), Some(b"body")),
            (b"\x01name", None, Some(b"body")),
            (b"\x01name", Some(5), None),
        ] {
            assert!(document_of(place, version, body).is_err(), "{place:?} {version:?} {body:?}");
        }
    }
}
