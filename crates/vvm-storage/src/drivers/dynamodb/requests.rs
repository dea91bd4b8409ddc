//! The requests for slots and settings.

use super::{
    errors::{DriverError, Failure},
    rows::{self, Item},
};
use crate::key::Partition;
use aws_sdk_dynamodb::{
    Client,
    error::SdkError,
    operation::update_item::{UpdateItemError, builders::UpdateItemFluentBuilder},
    types::{KeysAndAttributes, ReturnValuesOnConditionCheckFailure},
};
use std::collections::{HashMap, HashSet};

/// How many items one `BatchGetItem` takes.
pub(super) const PEEKED_AT_ONCE: usize = 100;

/// A client and the table that its requests are for.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    pub(super) client: Client,
    pub(super) table: String,
}

impl Requests {
    pub(super) fn new(client: Client, table: String) -> Self {
        Self { client, table }
    }

    /// An update of a partition's first item. A refusal contains the present item.
    pub(super) fn update(&self, partition: &[u8]) -> UpdateItemFluentBuilder {
        self.client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(rows::key(partition)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    /// Sends an update. `None` if it was applied, else the present item, if there is one.
    pub(super) async fn unless_refused(
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

    /// Reads a partition's first item consistently.
    pub(super) async fn read(&self, partition: &[u8]) -> Result<Option<Item>, DriverError> {
        self.get(rows::key(partition)).await
    }

    /// Reads an item consistently.
    pub(super) async fn get(&self, key: Item) -> Result<Option<Item>, DriverError> {
        let read = self.client.get_item().table_name(&self.table).set_key(Some(key));
        let answer = read.consistent_read(true).send().await.map_err(Failure::of)?;
        Ok(answer.item)
    }

    /// Reads the first items of up to [`PEEKED_AT_ONCE`] partitions. Eventually consistent, at half the
    /// price.
    pub(super) async fn peek(&self, partitions: &[Partition]) -> Result<HashMap<Vec<u8>, Item>, DriverError> {
        // DynamoDB refuses a request with a key twice.
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
            // DynamoDB leaves out items when it throttles. An answer without any item is an error (I10).
            keys = answer.unprocessed_keys.into_iter().flatten().flat_map(|(_, rest)| rest.keys).collect();
            if keys.len() >= asked {
                let cause = "none of the requested items was read".to_owned();
                return Err(Failure::Throttled(cause).into());
            }
        }
        Ok(found)
    }
}
