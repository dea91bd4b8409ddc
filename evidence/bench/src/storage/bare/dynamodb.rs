//! DynamoDB: one conditional update for each verb, in the driver's table, through a client with its settings.

use super::{BareError, BareStatements, HOLDER, INCARNATION, TTL_NANOS, key};
use async_trait::async_trait;
use aws_sdk_dynamodb::{
    Client,
    config::{Builder, Region, StalledStreamProtectionConfig, retry::RetryConfig, timeout::TimeoutConfig},
    operation::update_item::builders::UpdateItemFluentBuilder,
    primitives::Blob,
    types::{AttributeValue, ReturnValuesOnConditionCheckFailure},
};
use std::time::Duration;

pub(super) struct DynamoDb {
    client: Client,
    table: String,
}

const SET: &str = "SET #epoch = :epoch, #incarnation = :incarnation, #write = :write, #ttl_nanos = :ttl, \
                   #holder = :holder";

impl DynamoDb {
    /// Uses only the option `endpoint` of `url`: profiles are not measured.
    pub(super) async fn connect(url: &str) -> Result<Self, BareError> {
        let place = url.strip_prefix("dynamodb://").ok_or("no dynamodb:// URL")?;
        let (region, rest) = place.split_once('/').ok_or("the URL names no table")?;
        let (table, options) = rest.split_once('?').unwrap_or((rest, ""));
        let mut loader = aws_config::defaults(aws_config::BehaviorVersion::v2026_01_12())
            .region(Region::new(region.to_owned()));
        if let Some(endpoint) = options.split('&').find_map(|option| option.strip_prefix("endpoint=")) {
            loader = loader.endpoint_url(endpoint);
        }
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(Duration::from_secs(1))
            .operation_attempt_timeout(Duration::from_secs(2))
            .build();
        let configuration = Builder::from(&loader.load().await)
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts)
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .build();
        Ok(Self { client: Client::from_conf(configuration), table: table.to_owned() })
    }

    /// Runs share a table, and each needs slots that were never led.
    fn update(&self, slot: u32, names: &[&str]) -> UpdateItemFluentBuilder {
        let mut partition = key(slot);
        partition.extend_from_slice(&std::process::id().to_be_bytes());
        let update = self
            .client
            .update_item()
            .table_name(&self.table)
            .key("pk", binary(&partition))
            .key("cc", binary(&[0]))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        names.iter().fold(update, |update, name| update.expression_attribute_names(format!("#{name}"), *name))
    }

    fn put(&self, slot: u32, write: u64, names: &[&str]) -> UpdateItemFluentBuilder {
        self.update(slot, names)
            .update_expression(SET)
            .expression_attribute_values(":epoch", number(1))
            .expression_attribute_values(":incarnation", binary(&INCARNATION))
            .expression_attribute_values(":write", number(write))
            .expression_attribute_values(":ttl", number(TTL_NANOS.unsigned_abs()))
            .expression_attribute_values(":holder", AttributeValue::S(HOLDER.into()))
    }
}

fn binary(bytes: &[u8]) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

#[async_trait(?Send)]
impl BareStatements for DynamoDb {
    async fn claim(&mut self, slot: u32) -> Result<(), BareError> {
        let names = ["epoch", "incarnation", "write", "ttl_nanos", "holder", "pk"];
        self.put(slot, 0, &names).condition_expression("attribute_not_exists(#pk)").send().await?;
        Ok(())
    }

    async fn renew(&mut self, slot: u32) -> Result<(), BareError> {
        self.put(slot, 1, &["epoch", "incarnation", "write", "ttl_nanos", "holder"])
            .condition_expression(
                "#epoch = :old_epoch AND #incarnation = :old_incarnation AND #write = :old_write",
            )
            .expression_attribute_values(":old_epoch", number(1))
            .expression_attribute_values(":old_incarnation", binary(&INCARNATION))
            .expression_attribute_values(":old_write", number(0))
            .send()
            .await?;
        Ok(())
    }

    async fn release(&mut self, slot: u32) -> Result<(), BareError> {
        self.update(slot, &["epoch", "incarnation", "write", "ttl_nanos", "holder"])
            .update_expression("REMOVE #incarnation, #write, #ttl_nanos, #holder")
            .condition_expression("#epoch = :epoch AND #incarnation = :incarnation")
            .expression_attribute_values(":epoch", number(1))
            .expression_attribute_values(":incarnation", binary(&INCARNATION))
            .send()
            .await?;
        Ok(())
    }
}
