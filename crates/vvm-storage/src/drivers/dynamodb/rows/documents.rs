//! The layout of documents, the actions of a batch, and the decoding of items.
//!
//! A document is an item of its slot's partition, after the leader record. Between them is the batch item:
//! the number of the last batch and the ids that it wrote. It is separate from the leader record, so that a
//! renewal stays a write of less than 1 KB.

use super::{
    super::errors::Damaged, EPOCH, IDS, INCARNATION, Item, PARTITION, PLACE, VALUE, VERSION, binary, bytes,
    check_format, key, key_of, number, numeral, wrong,
};
use aws_sdk_dynamodb::{
    error::BuildError,
    operation::query::builders::QueryFluentBuilder,
    primitives::Blob,
    types::{AttributeValue, ConditionCheck, Delete, Put, TransactWriteItem, Update},
};
use bytes::Bytes;
use ielections::{Document, DocumentId, DocumentVersion, DocumentWrite, Fence, OnlyIf, Scan};
use std::ops::Bound;

/// The sort key of the batch item.
const BATCHES: [u8; 1] = [1];

/// The first byte of a document's sort key.
const DOCUMENT: u8 = 2;

/// The longest id. A sort key of DynamoDB has at most 1,024 bytes.
pub(in super::super) const MAX_ID_BYTES: usize = 1023;

/// The last batch of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct Batches {
    /// Its number.
    pub(in super::super) last: DocumentVersion,
    /// The documents that it wrote.
    pub(in super::super) ids: Vec<Vec<u8>>,
}

impl Batches {
    pub(in super::super) fn of(item: Option<&Item>) -> Result<Self, Damaged> {
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

/// Returns the key of the batch item.
pub(in super::super) fn batches_key(partition: &[u8]) -> Item {
    key_of(partition, &BATCHES)
}

/// Returns the key of a document.
pub(in super::super) fn document_key(partition: &[u8], id: &[u8]) -> Item {
    key_of(partition, &place(id))
}

fn place(id: &[u8]) -> Vec<u8> {
    let mut place = Vec::with_capacity(1 + id.len());
    place.push(DOCUMENT);
    place.extend_from_slice(id);
    place
}

/// Returns the actions of a batch, which are one transaction.
pub(in super::super) fn batch(
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

/// Replaces the number of the last batch by the next one.
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
pub(in super::super) fn scanned(
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

/// Decodes the id in an item or a key.
pub(in super::super) fn id_of(item: &Item) -> Result<DocumentId, Damaged> {
    let id = bytes(item, PLACE)?.strip_prefix(&[DOCUMENT]).ok_or_else(|| wrong(item, PLACE))?;
    DocumentId::new(Bytes::copy_from_slice(id)).map_err(|_| wrong(item, PLACE))
}

/// Decodes a document.
pub(in super::super) fn document(item: &Item) -> Result<Document, Damaged> {
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

    #[test]
    fn document_is_decoded_and_a_malformed_one_is_damaged() {
        let item = |changes: &[(&str, Option<AttributeValue>)]| {
            let mut item = document_key(b"partition", b"name");
            item.extend([(VERSION.to_owned(), number(5)), (VALUE.to_owned(), binary(b""))]);
            for (name, value) in changes {
                match value {
                    Some(value) => drop(item.insert((*name).to_owned(), value.clone())),
                    None => drop(item.remove(*name)),
                }
            }
            item
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
        assert_eq!(Batches::of(None), Ok(Batches { last: DocumentVersion::NONE, ids: Vec::new() }));
        let mut item = batches_key(b"partition");
        assert!(Batches::of(Some(&item)).is_err());
        item.insert(VERSION.to_owned(), number(5));
        assert_eq!(Batches::of(Some(&item)).map(|batches| batches.last.get()), Ok(5));
        item.insert(IDS.to_owned(), AttributeValue::Bs(vec![Blob::new("name")]));
        assert_eq!(Batches::of(Some(&item)).map(|batches| batches.ids), Ok(vec![b"name".to_vec()]));
        item.insert(IDS.to_owned(), binary(b"name"));
        assert!(Batches::of(Some(&item)).is_err());
    }
}
