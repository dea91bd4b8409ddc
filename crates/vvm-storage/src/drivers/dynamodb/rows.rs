//! The layout of slots and settings, the condition of each verb, and the decoding of items.
//!
//! A leader record is the first item of its slot's partition, so that one transaction can fence documents,
//! which are items of the same partition (`documents.rs`). A released record keeps only its epoch. A setting
//! is the only item of a partition of its own.

mod documents;

pub(super) use documents::{
    Batches, MAX_ID_BYTES, batch, batches_key, document, document_key, id_of, scanned,
};

use super::errors::Damaged;
use aws_sdk_dynamodb::{
    operation::update_item::builders::UpdateItemFluentBuilder, primitives::Blob, types::AttributeValue,
};
use ielections::{Entry, Epoch, Holder, Incarnation, Slot, Ttl, Vacant, Version};
use std::{collections::HashMap, fmt::Display, str::FromStr, time::Duration};

/// The names of the two keys, both binary: the partition, and the item in it.
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

/// The latest format that this version knows.
const KNOWN_FORMAT: u32 = 1;

/// An item, by the names of its attributes.
pub(super) type Item = HashMap<String, AttributeValue>;

/// The sort key of the first item. A key must not be empty.
const FIRST: [u8; 1] = [0];

/// Returns the key of the leader record or the setting of a partition.
pub(super) fn key(partition: &[u8]) -> Item {
    key_of(partition, &FIRST)
}

fn key_of(partition: &[u8], place: &[u8]) -> Item {
    Item::from([(PARTITION.into(), binary(partition)), (PLACE.into(), binary(place))])
}

/// Returns the partition of an item, if it has a valid key.
pub(super) fn partition(item: &Item) -> Option<&[u8]> {
    match item.get(PARTITION)? {
        AttributeValue::B(bytes) => Some(bytes.as_ref()),
        _ => None,
    }
}

/// A claim or a renewal: replaces exactly `from`, a record or a vacancy, by `entry`.
pub(super) fn swap(update: UpdateItemFluentBuilder, from: &Slot, entry: &Entry) -> UpdateItemFluentBuilder {
    let update = named(update, [EPOCH, INCARNATION, WRITE, TTL, HOLDER])
        .update_expression(
            "SET #epoch = :epoch, #incarnation = :incarnation, #write = :write, #ttl_nanos = \
            :ttl, #holder = :holder",
        )
        .expression_attribute_values(":epoch", number(entry.epoch.get()))
        .expression_attribute_values(":incarnation", binary(entry.incarnation().as_bytes()))
        .expression_attribute_values(":write", number(entry.version.write))
        .expression_attribute_values(":ttl", number(entry.ttl.get().as_nanos()))
        .expression_attribute_values(":holder", AttributeValue::S(entry.holder.as_str().into()));
    match from {
        Slot::Vacant(Vacant { last_epoch: None }) => {
            named(update, [PARTITION]).condition_expression("attribute_not_exists(#pk)")
        }
        Slot::Vacant(Vacant { last_epoch: Some(epoch) }) => update
            .condition_expression("#epoch = :old_epoch AND attribute_not_exists(#incarnation)")
            .expression_attribute_values(":old_epoch", number(epoch.get())),
        Slot::Held { entry: old, .. } => update
            .condition_expression(
                "#epoch = :old_epoch AND #incarnation = :old_incarnation AND #write = :old_write",
            )
            .expression_attribute_values(":old_epoch", number(old.epoch.get()))
            .expression_attribute_values(":old_incarnation", binary(old.incarnation().as_bytes()))
            .expression_attribute_values(":old_write", number(old.version.write)),
    }
}

/// Makes the slot vacant if this leadership holds it, with any version.
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

/// Stores a setting if there is none.
pub(super) fn settle(update: UpdateItemFluentBuilder, value: &[u8]) -> UpdateItemFluentBuilder {
    named(update, [PARTITION, VALUE])
        .update_expression("SET #value = :value")
        .condition_expression("attribute_not_exists(#pk)")
        .expression_attribute_values(":value", binary(value))
}

/// Decodes a slot.
pub(super) fn slot(item: Option<&Item>) -> Result<Slot, Damaged> {
    let Some(item) = item else { return Ok(Slot::Vacant(Vacant { last_epoch: None })) };
    check_format(item)?;
    let epoch = Epoch::new(numeral(item, EPOCH)?).map_err(damaged)?;
    if !item.contains_key(INCARNATION) {
        return Ok(Slot::Vacant(Vacant { last_epoch: Some(epoch) }));
    }
    let incarnation =
        bytes(item, INCARNATION)?.try_into().map_err(|_| damaged("its incarnation has not 16 bytes"))?;
    let Some(AttributeValue::S(holder)) = item.get(HOLDER) else { return Err(wrong(item, HOLDER)) };
    let entry = Entry {
        holder: Holder::new(holder.as_str()).map_err(damaged)?,
        version: Version { incarnation: Incarnation::from_bytes(incarnation), write: numeral(item, WRITE)? },
        ttl: Ttl::new(Duration::from_nanos(numeral(item, TTL)?)).map_err(damaged)?,
        epoch,
    };
    Ok(Slot::Held { entry, proven_age: None })
}

/// Decodes a setting.
pub(super) fn setting(item: Option<&Item>) -> Result<Option<Vec<u8>>, Damaged> {
    let Some(item) = item else { return Ok(None) };
    check_format(item)?;
    bytes(item, VALUE).map(|value| Some(value.to_vec()))
}

/// Fails if the item has a format of a later version of this program.
fn check_format(item: &Item) -> Result<(), Damaged> {
    let found = if item.contains_key(FORMAT) { numeral(item, FORMAT)? } else { 1 };
    if found <= KNOWN_FORMAT { Ok(()) } else { Err(Damaged::Newer { found, known: KNOWN_FORMAT }) }
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

fn numeral<N: FromStr>(item: &Item, name: &str) -> Result<N, Damaged> {
    match item.get(name) {
        Some(AttributeValue::N(number)) => number.parse().map_err(|_| wrong(item, name)),
        _ => Err(wrong(item, name)),
    }
}

fn bytes<'item>(item: &'item Item, name: &str) -> Result<&'item [u8], Damaged> {
    match item.get(name) {
        Some(AttributeValue::B(bytes)) => Ok(bytes.as_ref()),
        _ => Err(wrong(item, name)),
    }
}

fn wrong(item: &Item, name: &str) -> Damaged {
    match item.get(name) {
        Some(value) => Damaged::Foreign(format!("its {name} is {value:?}")),
        None => Damaged::Foreign(format!("it has no {name}")),
    }
}

fn damaged(what: impl ToString) -> Damaged {
    Damaged::Foreign(what.to_string())
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
}
