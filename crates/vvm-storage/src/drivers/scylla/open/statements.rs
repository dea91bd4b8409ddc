//! The prepared statements, each with its consistency.

mod documents;

pub(in super::super) use documents::MAX_PAGE;

use super::super::{
    errors::DriverError,
    rows::{self, Columns, Record},
};
use ::scylla::{
    client::session::Session,
    errors::PrepareError,
    serialize::row::SerializeRow,
    statement::{Consistency, SerialConsistency, prepared::PreparedStatement},
};
use documents::DocumentStatements;
use ielections::{Epoch, Incarnation};
use std::fmt;

/// The replicas that must agree. Every write to a table uses the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) enum Levels {
    /// A majority of all replicas.
    Global,
    /// A majority of the replicas of this data centre.
    Local(String),
}

impl Levels {
    pub(in super::super) fn serial(&self) -> SerialConsistency {
        match self {
            Self::Global => SerialConsistency::Serial,
            Self::Local(_) => SerialConsistency::LocalSerial,
        }
    }

    pub(in super::super) fn commit(&self) -> Consistency {
        match self {
            Self::Global => Consistency::Quorum,
            Self::Local(_) => Consistency::LocalQuorum,
        }
    }

    pub(in super::super) fn read(&self) -> Consistency {
        match self {
            Self::Global => Consistency::Serial,
            Self::Local(_) => Consistency::LocalSerial,
        }
    }
}

/// As recorded with the table.
impl fmt::Display for Levels {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => out.write_str("SERIAL"),
            Self::Local(datacenter) => write!(out, "LOCAL_SERIAL in {datacenter}"),
        }
    }
}

pub(in super::super) struct Statements {
    pub(in super::super) session: Session,
    swap: PreparedStatement,
    release: PreparedStatement,
    read: PreparedStatement,
    peek: PreparedStatement,
    settle: PreparedStatement,
    setting: PreparedStatement,
    documents: DocumentStatements,
}

impl Statements {
    pub(in super::super) async fn prepare(
        session: Session,
        keyspace: &str,
        levels: &Levels,
    ) -> Result<Self, PrepareError> {
        let prepare = |text, consistency| prepare(&session, text, consistency);
        let (commit, read) = (levels.commit(), levels.read());
        let documents = DocumentStatements::prepare(&session, keyspace, levels).await?;
        Ok(Self {
            swap: prepare(rows::swap(keyspace), commit).await?,
            release: prepare(rows::release(keyspace), commit).await?,
            read: prepare(rows::read(keyspace), read).await?,
            // One replica: cheap, and stale until it receives a write.
            peek: prepare(rows::read(keyspace), Consistency::LocalOne).await?,
            settle: prepare(rows::settle(keyspace), commit).await?,
            setting: prepare(rows::setting(keyspace), read).await?,
            documents,
            session,
        })
    }

    pub(in super::super) async fn swap(
        &self,
        at: &[u8],
        new: &Record<'_>,
        old: &Record<'_>,
    ) -> Result<Columns, DriverError> {
        let new = (new.epoch, new.incarnation, new.write, new.ttl_nanos, new.holder);
        let old = (old.epoch, old.incarnation, old.write, old.ttl_nanos, old.holder);
        let values = (new.0, new.1, new.2, new.3, new.4, at, old.0, old.1, old.2, old.3, old.4);
        self.execute(&self.swap, values).await
    }

    pub(in super::super) async fn release(
        &self,
        at: &[u8],
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Columns, DriverError> {
        let values = (at, epoch.get().cast_signed(), incarnation.as_bytes().as_slice());
        self.execute(&self.release, values).await
    }

    pub(in super::super) async fn read(&self, at: &[u8]) -> Result<Columns, DriverError> {
        self.execute(&self.read, (at,)).await
    }

    pub(in super::super) async fn peek(&self, at: &[u8]) -> Result<Columns, DriverError> {
        self.execute(&self.peek, (at,)).await
    }

    pub(in super::super) async fn settle(&self, at: &[u8], value: &[u8]) -> Result<Columns, DriverError> {
        self.execute(&self.settle, (at, value)).await
    }

    pub(in super::super) async fn setting(&self, at: &[u8]) -> Result<Columns, DriverError> {
        self.execute(&self.setting, (at,)).await
    }

    async fn execute(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Columns, DriverError> {
        Columns::of(self.session.execute_unpaged(statement, values).await?)
    }
}

pub(in super::super) async fn prepare(
    session: &Session,
    text: String,
    consistency: Consistency,
) -> Result<PreparedStatement, PrepareError> {
    let mut statement = session.prepare(text).await?;
    statement.set_consistency(consistency);
    Ok(statement)
}

impl fmt::Debug for Statements {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.session.get_cluster_state().get_nodes_info().len();
        out.debug_struct("Statements").field("nodes", &nodes).finish_non_exhaustive()
    }
}
