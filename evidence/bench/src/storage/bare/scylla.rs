//! ScyllaDB and Apache Cassandra: one lightweight transaction for each verb, in the driver's table, through a
//! session with its settings.

use super::{BareError, BareStatements, BareWriter, HOLDER, INCARNATION, TTL_NANOS, key};
use async_trait::async_trait;
use aws_sdk_dynamodb::{
    Client,
    config::{Builder, Region, StalledStreamProtectionConfig, retry::RetryConfig, timeout::TimeoutConfig},
    operation::update_item::builders::UpdateItemFluentBuilder,
    primitives::Blob,
    types::{AttributeValue, ReturnValuesOnConditionCheckFailure},
};
use scylla::{
    client::{execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
    policies::retry::FallthroughRetryPolicy,
    serialize::row::SerializeRow,
    statement::{Consistency, SerialConsistency, prepared::PreparedStatement},
    value::{CqlValue, Row},
};
use std::{ops::Range, sync::Arc, time::Duration};

#[derive(Clone)]
pub(super) struct Scylla {
    session: Arc<Session>,
    swap: PreparedStatement,
    release: PreparedStatement,
}

/// One of many writers that share a session, as the leaders of a handle do.
struct Writer {
    statements: Scylla,
    slot: u32,
    /// The last one.
    write: i64,
}

/// The columns of a slot; all null if it was never led.
type Record = (Option<i64>, Option<&'static [u8]>, Option<i64>, Option<i64>, Option<&'static str>);

fn record(write: i64) -> Record {
    (Some(1), Some(&INCARNATION), Some(write), Some(TTL_NANOS), Some(HOLDER))
}

impl Scylla {
    /// Uses hosts and keyspace of `url`, and no option: clusters with passwords are not measured.
    pub(super) async fn connect(url: &str) -> Result<Self, BareError> {
        let place = url.strip_prefix("scylla://").ok_or("no scylla:// URL")?;
        let (hosts, rest) = place.split_once('/').ok_or("the URL names no keyspace")?;
        let keyspace = rest.split('?').next().unwrap_or_default();
        let profile = ExecutionProfile::builder()
            .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
            .speculative_execution_policy(None)
            .serial_consistency(Some(SerialConsistency::Serial))
            .consistency(Consistency::Quorum)
            .build();
        let session = SessionBuilder::new()
            .known_nodes(hosts.split(','))
            .default_execution_profile_handle(profile.into_handle())
            .build()
            .await?;
        let table = format!("\"{keyspace}\".sysvvm");
        let swap = format!(
            "UPDATE {table} SET epoch = ?, incarnation = ?, write = ?, ttl_nanos = ?, holder = ? \
             WHERE pk = ? IF epoch = ? AND incarnation = ? AND write = ? AND ttl_nanos = ? AND holder = ?"
        );
        let release = format!(
            "UPDATE {table} SET incarnation = 0x, write = 0, ttl_nanos = 0, holder = '' WHERE pk = ? \
             IF epoch = ? AND incarnation = ? AND write >= {} AND ttl_nanos >= 0 AND holder >= ''",
            i64::MIN
        );
        let (swap, release) = (session.prepare(swap).await?, session.prepare(release).await?);
        Ok(Self { session: Arc::new(session), swap, release })
    }

    async fn swap(&self, slot: u32, old: Record, new: Record) -> Result<(), BareError> {
        let values = (new.0, new.1, new.2, new.3, new.4, self.key(slot), old.0, old.1, old.2, old.3, old.4);
        self.execute(&self.swap, values).await
    }

    /// Runs share a table, and each needs slots that were never led.
    fn key(&self, slot: u32) -> Vec<u8> {
        let mut key = key(slot);
        key.extend_from_slice(&std::process::id().to_be_bytes());
        key
    }

    async fn execute(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<(), BareError> {
        let rows = self.session.execute_unpaged(statement, values).await?.into_rows_result()?;
        match rows.first_row::<Row>()?.columns.first() {
            Some(Some(CqlValue::Boolean(true))) => Ok(()),
            _ => Err("a bare statement was refused".into()),
        }
    }
}

#[async_trait(?Send)]
impl BareStatements for Scylla {
    async fn claim(&mut self, slot: u32) -> Result<(), BareError> {
        self.swap(slot, (None, None, None, None, None), record(0)).await
    }

    async fn renew(&mut self, slot: u32) -> Result<(), BareError> {
        self.swap(slot, record(0), record(1)).await
    }

    async fn release(&mut self, slot: u32) -> Result<(), BareError> {
        self.execute(&self.release, (self.key(slot), 1_i64, INCARNATION.as_slice())).await
    }

    async fn writers(&mut self, slots: Range<u32>) -> Result<Option<Vec<Box<dyn BareWriter>>>, BareError> {
        let mut writers: Vec<Box<dyn BareWriter>> = Vec::new();
        for slot in slots {
            self.claim(slot).await?;
            writers.push(Box::new(Writer { statements: self.clone(), slot, write: 0 }));
        }
        Ok(Some(writers))
    }
}

#[async_trait(?Send)]
impl BareWriter for Writer {
    async fn renew(&mut self) -> Result<(), BareError> {
        self.statements.swap(self.slot, record(self.write), record(self.write + 1)).await?;
        self.write += 1;
        Ok(())
    }
}

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
