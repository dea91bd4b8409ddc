//! The requests, as DynamoDB takes them.

use super::super::{
    errors::{DriverError, Failure},
    rows::{self, Item},
};
use crate::Partition;
use aws_sdk_dynamodb::{
    Client,
    error::SdkError,
    operation::update_item::{UpdateItemError, builders::UpdateItemFluentBuilder},
    types::{KeysAndAttributes, ReturnValuesOnConditionCheckFailure},
};
use std::collections::{HashMap, HashSet};

/// As many items as `BatchGetItem` takes.
pub(in super::super) const PEEKED_AT_ONCE: usize = 100;

/// What requests are sent with, and to which table.
#[derive(Clone, Debug)]
pub(in super::super) struct Requests {
    pub(in super::super) client: Client,
    pub(in super::super) table: String,
}

impl Requests {
    pub(in super::super) fn new(client: Client, table: String) -> Self {
        Self { client, table }
    }

    /// An update of a partition's first item, whose refusal shows what stands there.
    pub(in super::super) fn update(&self, partition: &[u8]) -> UpdateItemFluentBuilder {
        self.client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(rows::key(partition)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    /// Sends an update. `None` if it was done, else the item that stands there instead, if there is one.
    pub(in super::super) async fn unless_refused(
        &self,
        update: UpdateItemFluentBuilder,
    ) -> Result<Option<Option<Item>>, DriverError> {
        let error = match update.send().await {
            Ok(_) => return Ok(None),
            Err(error) => error,
        };
        if let SdkError::ServiceError(answer) = &error
            && let UpdateItemError::ConditionalCheckFailedException(refusal) = answer.err()
        {
            return Ok(Some(refusal.item.clone()));
        }
        Err(Failure::of(error).into())
    }

    /// A partition's first item, as the last write left it.
    pub(in super::super) async fn read(&self, partition: &[u8]) -> Result<Option<Item>, DriverError> {
        self.get(rows::key(partition)).await
    }

    /// The item of this key, as the last write left it.
    pub(in super::super) async fn get(&self, key: Item) -> Result<Option<Item>, DriverError> {
        let read = self.client.get_item().table_name(&self.table).set_key(Some(key));
        let answer = read.consistent_read(true).send().await.map_err(Failure::of)?;
        Ok(answer.item)
    }

    /// The first items of up to [`PEEKED_AT_ONCE`] partitions, by partition; eventually consistent, at half
    /// the price.
    pub(in super::super) async fn peek(
        &self,
        partitions: &[Partition],
    ) -> Result<HashMap<Vec<u8>, Item>, DriverError> {
        // A key may be asked for only once.
        let partitions: HashSet<_> = partitions.iter().map(Partition::as_bytes).collect();
        let mut keys: Vec<_> = partitions.into_iter().map(rows::key).collect();
        let mut found = HashMap::new();
        while !keys.is_empty() {
            let asked = keys.len();
            let batch = KeysAndAttributes::builder().set_keys(Some(keys)).build();
            let batch = batch.map_err(|error| Failure::of_building(&error))?;
            let request = self.client.batch_get_item().request_items(&self.table, batch);
            let answer = request.send().await.map_err(Failure::of)?;
            for item in answer.responses.into_iter().flatten().flat_map(|(_, items)| items) {
                if let Some(partition) = rows::partition(&item) {
                    found.insert(partition.to_vec(), item);
                }
            }
            // What was too much at once. Each answer brings something, or it is an error (I10).
            keys = answer.unprocessed_keys.into_iter().flatten().flat_map(|(_, rest)| rest.keys).collect();
            if keys.len() >= asked {
                let none = "none of the items asked for was read".to_owned();
                return Err(Failure::Throttled(none).into());
            }
        }
        Ok(found)
    }
}
