//! [`Requests`]: each sent once, with the condition of its step, that of [`decide`](crate::decide). DynamoDB compares
//! and writes an item, or all items of a transaction, at one moment.

use super::{
    DriverError,
    rows::{
        self, Batches, EPOCH, HOLDER, IDS, INCARNATION, Item, MAX_ID_BYTES, PARTITION, PLACE, TTL, VALUE,
        VERSION, WRITE, binary, number,
    },
    said,
};
use crate::{
    key::Partition,
    step::{CurrentState, StepOutcome},
};
use aws_sdk_dynamodb::{
    Client,
    config::IdentityCache,
    error::BuildError,
    operation::{
        query::builders::QueryFluentBuilder,
        transact_get_items::TransactGetItemsError,
        transact_write_items::TransactWriteItemsError,
        update_item::{UpdateItemError, builders::UpdateItemFluentBuilder},
    },
    primitives::Blob,
    types::{
        AttributeValue, ConditionCheck, Delete, Get, KeysAndAttributes, Put,
        ReturnValuesOnConditionCheckFailure, TransactGetItem, TransactWriteItem, Update,
    },
};
use ielections::{
    Document, DocumentId, DocumentVersion, DocumentWrite, Entry, Epoch, Fence, FenceState, Incarnation,
    OnlyIf, Page, Scan, Slot, Vacant,
};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ops::Bound,
};

/// How many items one `BatchGetItem` takes.
pub(super) const PEEKED_AT_ONCE: usize = 100;

#[derive(Debug)]
pub(super) struct Requests {
    pub(super) client: Client,
    pub(super) table: String,
}

impl Requests {
    pub(super) fn new(client: Client, table: String) -> Self {
        Self { client, table }
    }

    pub(super) fn without_cached_credentials(&self) -> Self {
        let configuration = self.client.config().to_builder().identity_cache(IdentityCache::lazy().build());
        Self::new(Client::from_conf(configuration.build()), self.table.clone())
    }

    pub(super) fn update(&self, partition: &[u8]) -> UpdateItemFluentBuilder {
        self.client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(rows::key(partition)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    pub(super) async fn unless_refused(
        &self,
        update: UpdateItemFluentBuilder,
    ) -> Result<Option<Option<Item>>, DriverError> {
        let Err(error) = update.send().await else { return Ok(None) };
        match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(refusal)) => Ok(Some(refusal.item.clone())),
            _ => Err(DriverError::of(error)),
        }
    }

    pub(super) async fn read(&self, partition: &[u8]) -> Result<Option<Item>, DriverError> {
        self.get(rows::key(partition)).await
    }

    pub(super) async fn get(&self, key: Item) -> Result<Option<Item>, DriverError> {
        let read = self.client.get_item().table_name(&self.table).set_key(Some(key));
        let answer = read.consistent_read(true).send().await.map_err(DriverError::of)?;
        Ok(answer.item)
    }

    /// Eventually consistent, at half the price.
    pub(super) async fn peek(&self, partitions: &[Partition]) -> Result<HashMap<Vec<u8>, Item>, DriverError> {
        // DynamoDB refuses a request with a key twice.
        let partitions: HashSet<_> = partitions.iter().map(Partition::as_bytes).collect();
        let mut keys: Vec<_> = partitions.into_iter().map(rows::key).collect();
        let mut found = HashMap::new();
        while !keys.is_empty() {
            let asked = keys.len();
            let batch = KeysAndAttributes::builder().set_keys(Some(keys)).build();
            let batch = batch.map_err(|error| DriverError::of_building(&error))?;
            let request = self.client.batch_get_item().request_items(&self.table, batch);
            let answer = request.send().await.map_err(DriverError::of)?;
            for item in answer.responses.into_iter().flatten().flat_map(|(_, items)| items) {
                if let Some(partition) = rows::partition(&item) {
                    found.insert(partition.to_vec(), item);
                }
            }
            // DynamoDB leaves out items when it throttles. An answer without any item is an error (I10).
            keys = answer.unprocessed_keys.into_iter().flatten().flat_map(|(_, rest)| rest.keys).collect();
            if keys.len() >= asked {
                let cause = "none of the requested items was read".to_owned();
                return Err(DriverError::Throttled(cause));
            }
        }
        Ok(found)
    }
}

const LOOKS: usize = 3;

impl Requests {
    pub(super) async fn write_documents(
        &self,
        partition: &[u8],
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<StepOutcome, DriverError> {
        let actions = transaction(&self.table, partition, fence, batch);
        let actions = actions.map_err(|error| DriverError::of_building(&error))?;
        let sent = self.client.transact_write_items().set_transact_items(Some(actions)).send().await;
        let Err(error) = sent else { return Ok(StepOutcome::Applied) };
        if let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
            error.as_service_error()
        {
            let failure = DriverError::of_cancellation(cancelled.cancellation_reasons(), said(&error));
            return failure.map_or(Ok(StepOutcome::Refused(CurrentState::Nothing)), Err);
        }
        Err(DriverError::of(error))
    }

    /// Returns the leader record and the number of the last batch, when that batch is completely applied (I2). DynamoDB
    /// decides a transaction at one moment and then applies it item by item, and reads do not wait for that: one
    /// `GetItem` or `Query` may show an item after the transaction and another one before it. A claim succeeds as soon
    /// as the transaction is done with the leader record. So a new leader could read a count without its predecessor's
    /// last batch, or the count with that batch and not yet its documents.
    ///
    /// `TransactGetItems` is cancelled if any of its items belongs to a running transaction. One reads leader record,
    /// count and every document of the last batch. If it shows the count from which the ids were taken, then
    /// - no batch is running, because each one contains the leader record and the count;
    /// - the last batch is applied to each of its items;
    /// - so are all batches before it: before a leader sends a batch, it has the answer to the one before, which comes
    ///   after that one is applied, or it has called this function since.
    ///
    /// Every later batch is compared with the record that was read here, or with a later one.
    pub(super) async fn fence_state(&self, partition: &[u8]) -> Result<FenceState, DriverError> {
        let mut batches = Batches::from_item(self.get(rows::batches_key(partition)).await?.as_ref())?;
        for _ in 0..LOOKS {
            let items = self.read_together(partition, &batches.ids).await?;
            let mut items = items.iter().map(Option::as_ref);
            let (leader, count) = (items.next().flatten(), items.next().flatten());
            let present = Batches::from_item(count)?;
            if present == batches {
                return Ok(FenceState { slot: rows::slot(leader)?, last: batches.last });
            }
            batches = present;
        }
        Err(DriverError::Conflict("batches are written faster than they can be read".into()))
    }

    /// Of each document it reads only the version.
    async fn read_together(
        &self,
        partition: &[u8],
        ids: &BTreeSet<Vec<u8>>,
    ) -> Result<Vec<Option<Item>>, DriverError> {
        let whole = |key: Item| Get::builder().table_name(&self.table).set_key(Some(key));
        let version = |id: &Vec<u8>| {
            let get = whole(rows::document_key(partition, id));
            get.projection_expression("#version").expression_attribute_names("#version", VERSION)
        };
        let gets = [whole(rows::key(partition)), whole(rows::batches_key(partition))].into_iter();
        let gets = gets.chain(ids.iter().map(version));
        let gets: Result<Vec<_>, BuildError> =
            gets.map(|get| Ok(TransactGetItem::builder().get(get.build()?).build())).collect();
        let gets = gets.map_err(|error| DriverError::of_building(&error))?;
        let error = match self.client.transact_get_items().set_transact_items(Some(gets)).send().await {
            Ok(answer) => {
                let items = answer.responses.unwrap_or_default();
                let items: Vec<_> = items.into_iter().map(|response| response.item).collect();
                // A missing item would look like one that does not exist.
                if items.len() == 2 + ids.len() {
                    return Ok(items);
                }
                let cause = "the answer has fewer items than were requested";
                return Err(DriverError::Unanswered(cause.into()));
            }
            Err(error) => error,
        };
        if let Some(TransactGetItemsError::TransactionCanceledException(cancelled)) = error.as_service_error()
            && let Some(failure) =
                DriverError::of_cancellation(cancelled.cancellation_reasons(), said(&error))
        {
            return Err(failure);
        }
        Err(DriverError::of(error))
    }

    pub(super) async fn document(
        &self,
        partition: &[u8],
        id: &DocumentId,
    ) -> Result<Option<Document>, DriverError> {
        let item = self.get(rows::document_key(partition, id.as_bytes())).await?;
        Ok(item.as_ref().map(rows::document).transpose()?)
    }

    pub(super) async fn scan_documents(&self, partition: &[u8], scan: &Scan) -> Result<Page, DriverError> {
        let query = self.client.query().table_name(&self.table).consistent_read(true);
        let limit = scan.limit.try_into().unwrap_or(i32::MAX);
        let Some(query) = scanned(query.limit(limit), partition, scan) else {
            return Ok(Page { documents: Vec::new(), next: None });
        };
        let answer = query.send().await.map_err(DriverError::of)?;
        let documents = answer.items().iter().map(rows::document).collect::<Result<_, _>>()?;
        Ok(Page { documents, next: answer.last_evaluated_key().map(rows::id_of).transpose()? })
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

/// Declares names for expressions, all written with `#`: some, such as `write` and `value`, are reserved by DynamoDB.
fn named<const N: usize>(update: UpdateItemFluentBuilder, names: [&str; N]) -> UpdateItemFluentBuilder {
    names.into_iter().fold(update, |update, name| update.expression_attribute_names(format!("#{name}"), name))
}

fn transaction(
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
        .set_key(Some(rows::key(partition)))
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
        .set_key(Some(rows::batches_key(partition)))
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
    let key = rows::document_key(partition, write.id().as_bytes());
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
fn scanned(query: QueryFluentBuilder, partition: &[u8], scan: &Scan) -> Option<QueryFluentBuilder> {
    // No id is that long, and DynamoDB would refuse the key.
    if scan.prefix.len() > MAX_ID_BYTES {
        return None;
    }
    let behind = match scan.start() {
        Bound::Excluded(after) if !after.starts_with(&scan.prefix) => return None,
        // An id that is too long is cut. No id lies between the cut id and the whole one.
        Bound::Excluded(after) => {
            Some(rows::document_key(partition, &after[..after.len().min(MAX_ID_BYTES)]))
        }
        Bound::Included(_) | Bound::Unbounded => None,
    };
    let query = query
        .key_condition_expression("#pk = :pk AND begins_with(#cc, :prefix)")
        .expression_attribute_names("#pk", PARTITION)
        .expression_attribute_names("#cc", PLACE)
        .expression_attribute_values(":pk", binary(partition))
        .expression_attribute_values(":prefix", binary(&rows::place(&scan.prefix)));
    Some(query.set_exclusive_start_key(behind))
}
