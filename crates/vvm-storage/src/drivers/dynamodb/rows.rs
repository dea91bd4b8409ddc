//! The layout of slots, settings and documents, and the decoding of items. The number of the last batch has an item of
//! its own, so that a renewal stays a write of less than 1 KB.

use super::DecodeError;
use crate::step::{Columns, RecordColumns};
use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use bytes::Bytes;
use ielections::{Document, DocumentId, DocumentVersion, Slot, Vacant};
use std::{
    collections::{BTreeSet, HashMap},
    fmt::Display,
    str::FromStr,
};

pub(super) const PARTITION: &str = "pk";

pub(super) const PLACE: &str = "cc";

/// The attributes of items beside their keys. A time to live on one would delete records by DynamoDB's clock.
pub(super) const ATTRIBUTES: [&str; 8] = [EPOCH, INCARNATION, WRITE, TTL, HOLDER, VALUE, VERSION, IDS];

pub(super) const EPOCH: &str = "epoch";

pub(super) const INCARNATION: &str = "incarnation";

pub(super) const WRITE: &str = "write";

pub(super) const TTL: &str = "ttl_nanos";

pub(super) const HOLDER: &str = "holder";

pub(super) const VALUE: &str = "value";

pub(super) const VERSION: &str = "version";

pub(super) const IDS: &str = "ids";

/// The format of an item. Without it, the format is 1: this version writes format 1, and no attribute.
const FORMAT: &str = "format";

const KNOWN_FORMAT: u32 = 1;

pub(super) type Item = HashMap<String, AttributeValue>;

/// The sort key of the first item. A key must not be empty.
const FIRST: [u8; 1] = [0];

pub(super) fn key(partition: &[u8]) -> Item {
    key_of(partition, &FIRST)
}

fn key_of(partition: &[u8], place: &[u8]) -> Item {
    Item::from([(PARTITION.into(), binary(partition)), (PLACE.into(), binary(place))])
}

pub(super) fn partition(item: &Item) -> Option<&[u8]> {
    match item.get(PARTITION)? {
        AttributeValue::B(bytes) => Some(bytes.as_ref()),
        _ => None,
    }
}

pub(super) fn slot(item: Option<&Item>) -> Result<Slot, DecodeError> {
    let Some(item) = item else { return Ok(Slot::Vacant(Vacant { last_epoch: None })) };
    check_format(item)?;
    let epoch = numeral(item, EPOCH)?;
    let mut record = None;
    if item.contains_key(INCARNATION) {
        let Some(AttributeValue::S(holder)) = item.get(HOLDER) else { return Err(wrong(item, HOLDER)) };
        let (incarnation, holder) = (bytes(item, INCARNATION)?, holder.as_bytes());
        let (write, ttl_nanos) = (numeral(item, WRITE)?, numeral(item, TTL)?);
        record = Some(RecordColumns { incarnation, write, ttl_nanos, holder });
    }
    Columns { epoch, record }.slot().map_err(|damaged| DecodeError::Foreign(damaged.to_string()))
}

pub(super) fn setting(item: Option<&Item>) -> Result<Option<Vec<u8>>, DecodeError> {
    let Some(item) = item else { return Ok(None) };
    check_format(item)?;
    bytes(item, VALUE).map(|value| Some(value.to_vec()))
}

fn check_format(item: &Item) -> Result<(), DecodeError> {
    let found = if item.contains_key(FORMAT) { numeral(item, FORMAT)? } else { 1 };
    if found <= KNOWN_FORMAT { Ok(()) } else { Err(DecodeError::Newer { found, known: KNOWN_FORMAT }) }
}

pub(super) fn binary(bytes: &[u8]) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

/// A number. DynamoDB keeps 38 digits, so every `u64` is exact.
pub(super) fn number(number: impl Display) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

fn numeral<N: FromStr>(item: &Item, name: &str) -> Result<N, DecodeError> {
    match item.get(name) {
        Some(AttributeValue::N(number)) => number.parse().map_err(|_| wrong(item, name)),
        _ => Err(wrong(item, name)),
    }
}

fn bytes<'item>(item: &'item Item, name: &str) -> Result<&'item [u8], DecodeError> {
    match item.get(name) {
        Some(AttributeValue::B(bytes)) => Ok(bytes.as_ref()),
        _ => Err(wrong(item, name)),
    }
}

fn wrong(item: &Item, name: &str) -> DecodeError {
    match item.get(name) {
        Some(value) => DecodeError::Foreign(format!("its {name} is {value:?}")),
        None => DecodeError::Foreign(format!("it has no {name}")),
    }
}

const BATCHES: [u8; 1] = [1];

const DOCUMENT: u8 = 2;

/// The longest id. A sort key of DynamoDB has at most 1,024 bytes.
pub(super) const MAX_ID_BYTES: usize = 1023;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Batches {
    pub(super) last: DocumentVersion,
    pub(super) ids: BTreeSet<Vec<u8>>,
}

impl Batches {
    pub(super) fn from_item(item: Option<&Item>) -> Result<Self, DecodeError> {
        let Some(item) = item else { return Ok(Self { last: DocumentVersion::NONE, ids: BTreeSet::new() }) };
        check_format(item)?;
        let ids = match item.get(IDS) {
            None => BTreeSet::new(),
            Some(AttributeValue::Bs(ids)) => ids.iter().map(|id| id.as_ref().to_vec()).collect(),
            Some(_) => return Err(wrong(item, IDS)),
        };
        Ok(Self { last: DocumentVersion::from_stored(numeral(item, VERSION)?), ids })
    }
}

pub(super) fn batches_key(partition: &[u8]) -> Item {
    key_of(partition, &BATCHES)
}

pub(super) fn document_key(partition: &[u8], id: &[u8]) -> Item {
    key_of(partition, &place(id))
}

pub(super) fn place(id: &[u8]) -> Vec<u8> {
    [&[DOCUMENT], id].concat()
}

pub(super) fn id_of(item: &Item) -> Result<DocumentId, DecodeError> {
    let id = bytes(item, PLACE)?.strip_prefix(&[DOCUMENT]).ok_or_else(|| wrong(item, PLACE))?;
    DocumentId::new(Bytes::copy_from_slice(id)).map_err(|_| wrong(item, PLACE))
}

pub(super) fn document(item: &Item) -> Result<Document, DecodeError> {
    check_format(item)?;
    Ok(Document {
        id: id_of(item)?,
        version: DocumentVersion::from_stored(numeral(item, VERSION)?),
        body: Bytes::copy_from_slice(bytes(item, VALUE)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(changes: &[(&str, Option<AttributeValue>)]) -> Item {
        let mut item = key(b"partition");
        let columns = [
            (EPOCH, number(5)),
            (INCARNATION, binary(&[7; 16])),
            (WRITE, number(u64::MAX)),
            (TTL, number(1_000_000_000)),
            (HOLDER, AttributeValue::S("host".into())),
        ];
        item.extend(columns.map(|(name, value)| (name.to_owned(), value)));
        changed(item, changes)
    }

    fn changed(mut item: Item, changes: &[(&str, Option<AttributeValue>)]) -> Item {
        for (name, value) in changes {
            match value {
                Some(value) => drop(item.insert((*name).to_owned(), value.clone())),
                None => drop(item.remove(*name)),
            }
        }
        item
    }

    #[test]
    fn item_of_a_later_version_is_refused_with_both_formats() {
        let later = item(&[(FORMAT, Some(number(2))), (VALUE, Some(binary(b"3")))]);
        let refusals = [slot(Some(&later)).unwrap_err(), setting(Some(&later)).unwrap_err()];
        for refusal in refusals.map(|refusal| refusal.to_string()) {
            assert!(refusal.contains("has format 2") && refusal.contains("up to 1"), "{refusal}");
        }
    }

    #[test]
    fn slot_is_decoded_and_a_malformed_one_is_damaged() {
        let Ok(Slot::Held { entry, proven_age: None }) = slot(Some(&item(&[]))) else { panic!("not held") };
        assert_eq!((entry.epoch.get(), entry.version.write), (5, u64::MAX));
        assert_eq!(entry.holder.as_str(), "host");
        let released = [(INCARNATION, None), (WRITE, None), (TTL, None), (HOLDER, None)];
        assert_eq!(slot(Some(&item(&released))), Ok(Slot::Vacant(Vacant { last_epoch: Some(entry.epoch) })));
        assert_eq!(slot(None), Ok(Slot::Vacant(Vacant { last_epoch: None })));
        for (name, value) in [
            (EPOCH, None),
            (EPOCH, Some(number(0))),
            (EPOCH, Some(AttributeValue::S("5".into()))),
            (INCARNATION, Some(binary(&[7; 15]))),
            (INCARNATION, Some(AttributeValue::Null(true))),
            (WRITE, None),
            (WRITE, Some(number(-1))),
            (TTL, None),
            (TTL, Some(number("1.5"))),
            (TTL, Some(number(0))),
            (HOLDER, None),
            (FORMAT, Some(AttributeValue::S("1".into()))),
        ] {
            assert!(slot(Some(&item(&[(name, value.clone())]))).is_err(), "{name}: {value:?}");
        }
    }

    #[test]
    fn setting_is_decoded_and_a_malformed_one_is_damaged() {
        assert_eq!(setting(None), Ok(None));
        assert_eq!(setting(Some(&item(&[(VALUE, Some(binary(b"3")))]))), Ok(Some(b"3".to_vec())));
        assert!(setting(Some(&item(&[]))).is_err());
    }

    #[test]
    fn item_without_a_binary_partition_key_has_no_partition() {
        assert_eq!(partition(&item(&[])), Some(&b"partition"[..]));
        assert_eq!(partition(&item(&[(PARTITION, Some(number(1)))])), None);
    }

    #[test]
    fn document_is_decoded_and_a_malformed_one_is_damaged() {
        let item = |changes: &[(&str, Option<AttributeValue>)]| {
            let mut item = document_key(b"partition", b"name");
            item.extend([(VERSION.to_owned(), number(5)), (VALUE.to_owned(), binary(b""))]);
            changed(item, changes)
        };
        let decoded = document(&item(&[])).unwrap();
        assert_eq!(
            (decoded.id.as_bytes(), decoded.version.get(), &*decoded.body),
            (&b"name"[..], 5, &b""[..])
        );
        for (name, value) in [
            (PLACE, Some(binary(b"\x01name"))),
            (PLACE, Some(binary(&[DOCUMENT]))),
            (VERSION, None),
            (VERSION, Some(number("1.5"))),
            (VALUE, None),
            (VALUE, Some(number(1))),
        ] {
            assert!(document(&item(&[(name, value.clone())])).is_err(), "{name}: {value:?}");
        }
    }

    #[test]
    fn last_batch_is_decoded_and_a_malformed_one_is_damaged() {
        assert_eq!(
            Batches::from_item(None),
            Ok(Batches { last: DocumentVersion::NONE, ids: BTreeSet::new() })
        );
        let mut item = batches_key(b"partition");
        assert!(Batches::from_item(Some(&item)).is_err());
        item.insert(VERSION.to_owned(), number(5));
        assert_eq!(Batches::from_item(Some(&item)).map(|batches| batches.last.get()), Ok(5));
        let [one, other] = [["a", "b"], ["b", "a"]].map(|ids| {
            item.insert(IDS.to_owned(), AttributeValue::Bs(ids.map(Blob::new).to_vec()));
            Batches::from_item(Some(&item)).unwrap()
        });
        assert_eq!((one.ids.len(), &one), (2, &other));
        item.insert(IDS.to_owned(), binary(b"name"));
        assert!(Batches::from_item(Some(&item)).is_err());
    }
}
