//! The layout of slots, settings and documents, the condition of each step, and the decoding of items.
//!
//! The number of the last batch has an item of its own, so that a renewal stays a write of less than 1 KB.
//!
//! The conditions are those of [`decide`](crate::decide), stated as condition expressions: DynamoDB compares and writes
//! an item, or all items of a transaction, at one moment.

use super::errors::DecodeError;
use crate::step::{Columns, RecordColumns};
use aws_sdk_dynamodb::{
    error::BuildError,
    operation::{query::builders::QueryFluentBuilder, update_item::builders::UpdateItemFluentBuilder},
    primitives::Blob,
    types::{AttributeValue, ConditionCheck, Delete, Put, TransactWriteItem, Update},
};
use bytes::Bytes;
use ielections::{
    Document, DocumentId, DocumentVersion, DocumentWrite, Entry, Epoch, Fence, Incarnation, OnlyIf, Scan,
    Slot, Vacant,
};
use std::{collections::HashMap, fmt::Display, ops::Bound, str::FromStr};

pub(super) const PARTITION: &str = "pk";
pub(super) const PLACE: &str = "cc";

/// The attributes of items beside their keys. DynamoDB's time to live on one of them would delete records by
/// DynamoDB's clock.
pub(super) const ATTRIBUTES: [&str; 8] = [EPOCH, INCARNATION, WRITE, TTL, HOLDER, VALUE, VERSION, IDS];

const EPOCH: &str = "epoch";
const INCARNATION: &str = "incarnation";
const WRITE: &str = "write";
const TTL: &str = "ttl_nanos";
const HOLDER: &str = "holder";
pub(super) const VALUE: &str = "value";
pub(super) const VERSION: &str = "version";
const IDS: &str = "ids";

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

pub(super) fn claim(update: UpdateItemFluentBuilder, from: &Slot, to: &Entry) -> UpdateItemFluentBuilder {
    match from {
        Slot::Vacant(Vacant { last_epoch: None }) => {
            named(record(update, to), [PARTITION]).condition_expression("attribute_not_exists(#pk)")
        }
        Slot::Vacant(Vacant { last_epoch: Some(epoch) }) => record(update, to)
            .condition_expression("#epoch = :old_epoch AND attribute_not_exists(#incarnation)")
            .expression_attribute_values(":old_epoch", number(epoch.get())),
        Slot::Held { entry, .. } => renewal(update, entry, to),
    }
}

pub(super) fn renewal(update: UpdateItemFluentBuilder, held: &Entry, to: &Entry) -> UpdateItemFluentBuilder {
    record(update, to)
        .condition_expression(
            "#epoch = :old_epoch AND #incarnation = :old_incarnation AND #write = :old_write",
        )
        .expression_attribute_values(":old_epoch", number(held.epoch.get()))
        .expression_attribute_values(":old_incarnation", binary(held.incarnation().as_bytes()))
        .expression_attribute_values(":old_write", number(held.version.write))
}

fn record(update: UpdateItemFluentBuilder, entry: &Entry) -> UpdateItemFluentBuilder {
    named(update, [EPOCH, INCARNATION, WRITE, TTL, HOLDER])
        .update_expression(
            "SET #epoch = :epoch, #incarnation = :incarnation, #write = :write, #ttl_nanos = \
            :ttl, #holder = :holder",
        )
        .expression_attribute_values(":epoch", number(entry.epoch.get()))
        .expression_attribute_values(":incarnation", binary(entry.incarnation().as_bytes()))
        .expression_attribute_values(":write", number(entry.version.write))
        .expression_attribute_values(":ttl", number(entry.ttl.get().as_nanos()))
        .expression_attribute_values(":holder", AttributeValue::S(entry.holder.as_str().into()))
}

pub(super) fn release(
    update: UpdateItemFluentBuilder,
    incarnation: Incarnation,
    epoch: Epoch,
) -> UpdateItemFluentBuilder {
    named(update, [EPOCH, INCARNATION, WRITE, TTL, HOLDER])
        .update_expression("REMOVE #incarnation, #write, #ttl_nanos, #holder")
        .condition_expression("#epoch = :epoch AND #incarnation = :incarnation")
        .expression_attribute_values(":epoch", number(epoch.get()))
        .expression_attribute_values(":incarnation", binary(incarnation.as_bytes()))
}

pub(super) fn settle(update: UpdateItemFluentBuilder, value: &[u8]) -> UpdateItemFluentBuilder {
    named(update, [PARTITION, VALUE])
        .update_expression("SET #value = :value")
        .condition_expression("attribute_not_exists(#pk)")
        .expression_attribute_values(":value", binary(value))
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

/// Declares names for expressions, where all are written with `#`: some, such as `write` and `value`, are
/// reserved words of DynamoDB.
fn named<const N: usize>(update: UpdateItemFluentBuilder, names: [&str; N]) -> UpdateItemFluentBuilder {
    names.into_iter().fold(update, |update, name| update.expression_attribute_names(format!("#{name}"), name))
}

fn binary(bytes: &[u8]) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

/// A number. DynamoDB keeps 38 digits, so every `u64` is exact.
fn number(number: impl Display) -> AttributeValue {
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
    pub(super) ids: Vec<Vec<u8>>,
}

impl Batches {
    pub(super) fn from_item(item: Option<&Item>) -> Result<Self, DecodeError> {
        let Some(item) = item else { return Ok(Self { last: DocumentVersion::NONE, ids: Vec::new() }) };
        check_format(item)?;
        let ids = match item.get(IDS) {
            None => Vec::new(),
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

fn place(id: &[u8]) -> Vec<u8> {
    let mut place = Vec::with_capacity(1 + id.len());
    place.push(DOCUMENT);
    place.extend_from_slice(id);
    place
}

pub(super) fn batch(
    table: &str,
    partition: &[u8],
    fence: &Fence,
    writes: &[DocumentWrite],
) -> Result<Vec<TransactWriteItem>, BuildError> {
    let mut actions = Vec::with_capacity(2 + writes.len());
    actions.push(check_leader(table, partition, fence)?);
    actions.push(count_batch(table, partition, fence, writes)?);
    for write in writes {
        actions.push(action(table, partition, fence.after.next(), write)?);
    }
    Ok(actions)
}

/// Checks that this leadership holds the slot, with any version (I2).
fn check_leader(table: &str, partition: &[u8], fence: &Fence) -> Result<TransactWriteItem, BuildError> {
    let check = ConditionCheck::builder()
        .table_name(table)
        .set_key(Some(key(partition)))
        .condition_expression("#epoch = :epoch AND #incarnation = :incarnation")
        .expression_attribute_names("#epoch", EPOCH)
        .expression_attribute_names("#incarnation", INCARNATION)
        .expression_attribute_values(":epoch", number(fence.epoch.get()))
        .expression_attribute_values(":incarnation", binary(fence.incarnation.as_bytes()))
        .build()?;
    Ok(TransactWriteItem::builder().condition_check(check).build())
}

fn count_batch(
    table: &str,
    partition: &[u8],
    fence: &Fence,
    writes: &[DocumentWrite],
) -> Result<TransactWriteItem, BuildError> {
    let mut update = Update::builder()
        .table_name(table)
        .set_key(Some(batches_key(partition)))
        .expression_attribute_names("#version", VERSION)
        .expression_attribute_names("#ids", IDS)
        .expression_attribute_values(":next", number(fence.after.next().get()));
    update = if fence.after == DocumentVersion::NONE {
        update.condition_expression("attribute_not_exists(#version)")
    } else {
        update
            .condition_expression("#version = :after")
            .expression_attribute_values(":after", number(fence.after.get()))
    };
    // A set must not be empty.
    update = if writes.is_empty() {
        update.update_expression("SET #version = :next REMOVE #ids")
    } else {
        let ids = writes.iter().map(|write| Blob::new(write.id().as_bytes())).collect();
        update
            .update_expression("SET #version = :next, #ids = :ids")
            .expression_attribute_values(":ids", AttributeValue::Bs(ids))
    };
    Ok(TransactWriteItem::builder().update(update.build()?).build())
}

fn action(
    table: &str,
    partition: &[u8],
    version: DocumentVersion,
    write: &DocumentWrite,
) -> Result<TransactWriteItem, BuildError> {
    let condition = match write.only_if() {
        OnlyIf::Always => None,
        OnlyIf::Absent => Some("attribute_not_exists(#version)"),
        OnlyIf::Version(_) => Some("#version = :stands"),
    };
    let names = condition.map(|_| [("#version".to_owned(), VERSION.to_owned())].into());
    let values = match write.only_if() {
        OnlyIf::Version(stands) => Some([(":stands".to_owned(), number(stands.get()))].into()),
        OnlyIf::Always | OnlyIf::Absent => None,
    };
    let key = document_key(partition, write.id().as_bytes());
    let action = TransactWriteItem::builder();
    Ok(match write {
        DocumentWrite::Put { body, .. } => {
            let mut item = key;
            item.insert(VERSION.to_owned(), number(version.get()));
            item.insert(VALUE.to_owned(), binary(body));
            let put = Put::builder()
                .table_name(table)
                .set_item(Some(item))
                .set_condition_expression(condition.map(str::to_owned))
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values);
            action.put(put.build()?).build()
        }
        DocumentWrite::Delete { .. } => {
            let delete = Delete::builder()
                .table_name(table)
                .set_key(Some(key))
                .set_condition_expression(condition.map(str::to_owned))
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values);
            action.delete(delete.build()?).build()
        }
    })
}

/// Restricts a query to what the scan covers; `None` if that is nothing.
pub(super) fn scanned(
    query: QueryFluentBuilder,
    partition: &[u8],
    scan: &Scan,
) -> Option<QueryFluentBuilder> {
    // No id is that long, and DynamoDB would refuse the key.
    if scan.prefix.len() > MAX_ID_BYTES {
        return None;
    }
    let behind = match scan.start() {
        Bound::Excluded(after) if !after.starts_with(&scan.prefix) => return None,
        // An id that is too long is cut. No id lies between the cut id and the whole one.
        Bound::Excluded(after) => Some(document_key(partition, &after[..after.len().min(MAX_ID_BYTES)])),
        Bound::Included(_) | Bound::Unbounded => None,
    };
    let query = query
        .key_condition_expression("#pk = :pk AND begins_with(#cc, :prefix)")
        .expression_attribute_names("#pk", PARTITION)
        .expression_attribute_names("#cc", PLACE)
        .expression_attribute_values(":pk", binary(partition))
        .expression_attribute_values(":prefix", binary(&place(&scan.prefix)));
    Some(query.set_exclusive_start_key(behind))
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
        assert_eq!(Batches::from_item(None), Ok(Batches { last: DocumentVersion::NONE, ids: Vec::new() }));
        let mut item = batches_key(b"partition");
        assert!(Batches::from_item(Some(&item)).is_err());
        item.insert(VERSION.to_owned(), number(5));
        assert_eq!(Batches::from_item(Some(&item)).map(|batches| batches.last.get()), Ok(5));
        item.insert(IDS.to_owned(), AttributeValue::Bs(vec![Blob::new("name")]));
        assert_eq!(Batches::from_item(Some(&item)).map(|batches| batches.ids), Ok(vec![b"name".to_vec()]));
        item.insert(IDS.to_owned(), binary(b"name"));
        assert!(Batches::from_item(Some(&item)).is_err());
    }
}
