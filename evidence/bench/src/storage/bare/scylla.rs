//! ScyllaDB and Apache Cassandra: one lightweight transaction for each verb, in the driver's table, through a
//! session with its settings.

use super::{BareError, BareStatements, BareWriter, HOLDER, INCARNATION, TTL_NANOS, key};
use ::scylla::{
    client::{execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
    policies::retry::FallthroughRetryPolicy,
    serialize::row::SerializeRow,
    statement::{Consistency, SerialConsistency, prepared::PreparedStatement},
    value::{CqlValue, Row},
};
use async_trait::async_trait;
use std::{ops::Range, sync::Arc};

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
