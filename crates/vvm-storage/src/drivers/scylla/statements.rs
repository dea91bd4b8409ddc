//! The statement of each step, prepared once. The conditions are those of [`decide`](crate::decide): a transaction
//! compares all of them with one state of the partition, and writes all or nothing.

use super::{
    DriverError,
    rows::{self, Columns, FIRST, Record, TABLE},
};
use crate::step::Step;
use ::scylla::{
    client::{execution_profile::ExecutionProfileHandle, session::Session},
    errors::PrepareError,
    response::PagingState,
    serialize::row::SerializeRow,
    statement::{
        Consistency, SerialConsistency,
        batch::{Batch, BatchType},
        prepared::PreparedStatement,
    },
};
use ielections::{Document, DocumentId, DocumentVersion, DocumentWrite, Fence, OnlyIf, Page, Scan};
use std::{fmt, ops::ControlFlow, sync::Arc};

/// The replicas that must agree. Every write to a table uses the same: it is recorded with the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Levels {
    /// A quorum of all data centres: `SERIAL` and `QUORUM`.
    Global,
    /// A quorum of this data centre, in which all candidates are: `LOCAL_SERIAL` and `LOCAL_QUORUM`.
    Local(String),
}

impl Levels {
    pub(super) fn serial(&self) -> SerialConsistency {
        match self {
            Self::Global => SerialConsistency::Serial,
            Self::Local(_) => SerialConsistency::LocalSerial,
        }
    }

    pub(super) fn commit(&self) -> Consistency {
        match self {
            Self::Global => Consistency::Quorum,
            Self::Local(_) => Consistency::LocalQuorum,
        }
    }

    pub(super) fn read(&self) -> Consistency {
        match self {
            Self::Global => Consistency::Serial,
            Self::Local(_) => Consistency::LocalSerial,
        }
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => out.write_str("SERIAL"),
            Self::Local(datacenter) => write!(out, "LOCAL_SERIAL in {datacenter}"),
        }
    }
}

pub(super) struct Statements {
    pub(super) session: Arc<Session>,
    renew: PreparedStatement,
    release: PreparedStatement,
    read: PreparedStatement,
    peek: PreparedStatement,
    settle: PreparedStatement,
    setting: PreparedStatement,
    fence: PreparedStatement,
    opening: PreparedStatement,
    put: PreparedStatement,
    put_if: PreparedStatement,
    delete: PreparedStatement,
    delete_if: PreparedStatement,
    lookup: PreparedStatement,
    scan: PreparedStatement,
    batch: Batch,
}

impl Statements {
    pub(super) async fn prepare(
        session: Arc<Session>,
        keyspace: &str,
        levels: &Levels,
        profile: &ExecutionProfileHandle,
    ) -> Result<Self, PrepareError> {
        let prepare = |text: String, consistency| prepare(&session, text, consistency, profile);
        let (commit, read) = (levels.commit(), levels.read());
        let table = format!("\"{keyspace}\".{TABLE}");
        let record = format!(
            "SELECT epoch, incarnation, write, ttl_nanos, holder, last_batch FROM {table} WHERE pk = ? LIMIT 1"
        );
        let put = format!("UPDATE {table} SET version = ?, value = ? WHERE pk = ? AND cc = ?");
        let delete = format!("DELETE FROM {table} WHERE pk = ? AND cc = ?");
        let documents = format!("SELECT cc, version, value FROM {table} WHERE pk = ?");
        let mut scan = prepare(format!("{documents} AND cc >= ? AND cc < ? LIMIT ?"), read).await?;
        scan.set_page_size(MAX_PAGE.into());
        // A batch in one partition needs no batch log.
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_consistency(commit);
        batch.set_execution_profile_handle(Some(profile.clone()));
        // The values of claims and renewals are those of the new record, the partition, and those of the old one.
        let renew = format!(
            "UPDATE {table} SET epoch = ?, incarnation = ?, write = ?, ttl_nanos = ?, holder = ? \
             WHERE pk = ? IF epoch = ? AND incarnation = ? AND write = ? AND ttl_nanos = ? AND holder = ?"
        );
        // The third to fifth comparisons are always true. They make a refusal show these columns.
        let release = format!(
            "UPDATE {table} SET incarnation = 0x, write = 0, ttl_nanos = 0, holder = '' WHERE pk \
             = ? IF epoch = ? AND incarnation = ? AND write >= {} AND ttl_nanos >= 0 AND holder >= ''",
            i64::MIN
        );
        // The last comparison is always true. It makes a refusal show the id.
        let fence = format!(
            "UPDATE {table} SET last_batch = ?, last_batch_id = ? WHERE pk = ? \
             IF epoch = ? AND incarnation = ? AND last_batch = ? AND last_batch_id != 0x"
        );
        let settle = format!("INSERT INTO {table} (pk, cc, value) VALUES (?, {FIRST}, ?) IF NOT EXISTS");
        let setting = format!("SELECT value FROM {table} WHERE pk = ? AND cc = {FIRST}");
        Ok(Self {
            renew: prepare(renew, commit).await?,
            release: prepare(release, commit).await?,
            read: prepare(record.clone(), read).await?,
            // One replica: cheap, and stale until it receives a write.
            peek: prepare(record, Consistency::LocalOne).await?,
            settle: prepare(settle, commit).await?,
            setting: prepare(setting, read).await?,
            fence: prepare(fence, commit).await?,
            opening: prepare(format!("INSERT INTO {table} (pk, cc) VALUES (?, {FIRST})"), commit).await?,
            put_if: prepare(format!("{put} IF version = ?"), commit).await?,
            put: prepare(put, commit).await?,
            delete_if: prepare(format!("{delete} IF version = ?"), commit).await?,
            delete: prepare(delete, commit).await?,
            lookup: prepare(format!("{documents} AND cc = ?"), read).await?,
            scan,
            batch,
            session,
        })
    }

    pub(super) async fn step(&self, at: &[u8], step: &Step, id: &[u8]) -> Result<Columns, DriverError> {
        match step {
            Step::Claim { from, to } => {
                self.replace_record(at, &Record::of_entry(to), &Record::of_slot(from)).await
            }
            Step::Renew { from, to } => {
                self.replace_record(at, &Record::of_entry(to), &Record::of_entry(from)).await
            }
            Step::Release { incarnation, epoch } => {
                let values = (at, epoch.get().cast_signed(), incarnation.as_bytes().as_slice());
                self.execute(&self.release, values).await
            }
            Step::Batch { fence, writes } => self.batch(at, fence, id, writes).await,
            Step::Settle { value } => self.execute(&self.settle, (at, value)).await,
        }
    }

    async fn replace_record(
        &self,
        at: &[u8],
        new: &Record<'_>,
        old: &Record<'_>,
    ) -> Result<Columns, DriverError> {
        let new = (new.epoch, new.incarnation, new.write, new.ttl_nanos, new.holder);
        let old = (old.epoch, old.incarnation, old.write, old.ttl_nanos, old.holder);
        let values = (new.0, new.1, new.2, new.3, new.4, at, old.0, old.1, old.2, old.3, old.4);
        self.execute(&self.renew, values).await
    }

    pub(super) async fn read(&self, at: &[u8]) -> Result<Columns, DriverError> {
        self.execute(&self.read, (at,)).await
    }

    pub(super) async fn peek(&self, at: &[u8]) -> Result<Columns, DriverError> {
        self.execute(&self.peek, (at,)).await
    }

    pub(super) async fn setting(&self, at: &[u8]) -> Result<Columns, DriverError> {
        self.execute(&self.setting, (at,)).await
    }

    async fn execute(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Columns, DriverError> {
        Columns::from_result(self.session.execute_unpaged(statement, values).await?)
    }
}

async fn prepare(
    session: &Session,
    text: String,
    consistency: Consistency,
    profile: &ExecutionProfileHandle,
) -> Result<PreparedStatement, PrepareError> {
    let mut statement = session.prepare(text).await?;
    statement.set_execution_profile_handle(Some(profile.clone()));
    statement.set_consistency(consistency);
    Ok(statement)
}

impl fmt::Debug for Statements {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.session.get_cluster_state().get_nodes_info().len();
        out.debug_struct("Statements").field("nodes", &nodes).finish_non_exhaustive()
    }
}

/// The most documents of a page: with the largest bodies 8 MiB, which one node of Cassandra on two idle cores
/// returns in 0.1 s. A page that takes too long would time out at every attempt.
pub(super) const MAX_PAGE: u16 = 128;

type Values<'a> = Box<dyn SerializeRow + Send + Sync + 'a>;

fn stored(version: DocumentVersion) -> Option<i64> {
    (version != DocumentVersion::NONE).then_some(version.get().cast_signed())
}

fn condition(only_if: OnlyIf) -> Option<Option<i64>> {
    match only_if {
        OnlyIf::Always => None,
        OnlyIf::Absent => Some(None),
        OnlyIf::Version(version) => Some(Some(version.get().cast_signed())),
    }
}

impl Statements {
    async fn batch(
        &self,
        at: &[u8],
        fence: &Fence,
        id: &[u8],
        writes: &[DocumentWrite],
    ) -> Result<Columns, DriverError> {
        let version = stored(fence.after.next());
        let epoch = fence.epoch.get().cast_signed();
        let incarnation = fence.incarnation.as_bytes().as_slice();
        // First: the first row of the answer shows its columns, in ScyllaDB as in Cassandra.
        let compared = (version, id, at, epoch, incarnation, stored(fence.after));
        let mut parts: Vec<(&PreparedStatement, Values<'_>)> = vec![(&self.fence, Box::new(compared))];
        if fence.after == DocumentVersion::NONE {
            parts.push((&self.opening, Box::new((at,))));
        }
        parts.extend(writes.iter().map(|write| -> (_, Values<'_>) {
            let place = rows::place(write.id().as_bytes());
            match (write, condition(write.only_if())) {
                (DocumentWrite::Put { body, .. }, None) => {
                    (&self.put, Box::new((version, &**body, at, place)))
                }
                (DocumentWrite::Put { body, .. }, Some(stands)) => {
                    (&self.put_if, Box::new((version, &**body, at, place, stands)))
                }
                (DocumentWrite::Delete { .. }, None) => (&self.delete, Box::new((at, place))),
                (DocumentWrite::Delete { .. }, Some(stands)) => {
                    (&self.delete_if, Box::new((at, place, stands)))
                }
            }
        }));
        let mut batch = self.batch.clone();
        let mut values = Vec::with_capacity(parts.len());
        for (statement, of_it) in parts {
            batch.append_statement(statement.clone());
            values.push(of_it);
        }
        Columns::from_result(self.session.batch(&batch, values).await?)
    }

    pub(super) async fn document(&self, at: &[u8], id: &DocumentId) -> Result<Option<Document>, DriverError> {
        let values = (at, rows::place(id.as_bytes()));
        let answer = self.session.execute_unpaged(&self.lookup, values).await?;
        Ok(rows::documents(answer)?.pop())
    }

    pub(super) async fn scan_documents(&self, at: &[u8], scan: &Scan) -> Result<Page, DriverError> {
        let (first, end) = rows::scanned(scan);
        let limit = scan.limit.min(MAX_PAGE.into());
        let values = (at, first, end, limit as i32);
        let mut from = PagingState::start();
        loop {
            let (answer, rest) = self.session.execute_single_page(&self.scan, &values, from).await?;
            let documents = rows::documents(answer)?;
            // ScyllaDB may return fewer rows than the page size.
            let more = rest.into_paging_control_flow();
            match more {
                // The page may have consisted of tombstones.
                ControlFlow::Continue(state) if documents.is_empty() => from = state,
                _ => {
                    let full = documents.len() == limit || more.is_continue();
                    let next = documents.last().filter(|_| full).map(|last| last.id.clone());
                    return Ok(Page { documents, next });
                }
            }
        }
    }
}
