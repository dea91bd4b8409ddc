//! The prepared statements of documents, each with its consistency, and the batch of them.

use super::{
    super::super::{
        errors::DriverError,
        rows::{self, Columns},
    },
    Levels, Statements, prepare,
};
use ::scylla::{
    client::session::Session,
    errors::PrepareError,
    response::PagingState,
    serialize::row::SerializeRow,
    statement::{
        batch::{Batch, BatchType},
        prepared::PreparedStatement,
    },
};
use ielections::{Document, DocumentId, DocumentVersion, DocumentWrite, Fence, OnlyIf, Page, Scan};
use std::ops::ControlFlow;

/// The most documents of a page: with the largest bodies 8 MiB, which one node of Cassandra on two idle cores
/// returns in 0.1 s. A page that takes too long would time out at every attempt.
pub(in super::super::super) const MAX_PAGE: u16 = 128;

pub(super) struct DocumentStatements {
    fence: PreparedStatement,
    opening: PreparedStatement,
    put: PreparedStatement,
    put_if: PreparedStatement,
    delete: PreparedStatement,
    delete_if: PreparedStatement,
    lookup: PreparedStatement,
    scan: PreparedStatement,
    /// An empty batch with the right consistency, to be cloned.
    batch: Batch,
}

impl DocumentStatements {
    pub(super) async fn prepare(
        session: &Session,
        keyspace: &str,
        levels: &Levels,
    ) -> Result<Self, PrepareError> {
        let prepare = |text, consistency| prepare(session, text, consistency);
        let (commit, read) = (levels.commit(), levels.read());
        let mut scan = prepare(rows::scan(keyspace), read).await?;
        scan.set_page_size(MAX_PAGE.into());
        // A batch in one partition needs no batch log.
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_consistency(commit);
        Ok(Self {
            fence: prepare(rows::fence(keyspace), commit).await?,
            opening: prepare(rows::opening(keyspace), commit).await?,
            put: prepare(rows::put(keyspace), commit).await?,
            put_if: prepare(rows::put_if(keyspace), commit).await?,
            delete: prepare(rows::delete(keyspace), commit).await?,
            delete_if: prepare(rows::delete_if(keyspace), commit).await?,
            lookup: prepare(rows::lookup(keyspace), read).await?,
            scan,
            batch,
        })
    }
}

/// The values of one statement.
type Values<'a> = Box<dyn SerializeRow + Send + Sync + 'a>;

/// Returns the column's value: null for none.
fn stored(version: DocumentVersion) -> Option<i64> {
    (version != DocumentVersion::NONE).then_some(version.get().cast_signed())
}

/// Returns the version that a conditional statement compares, if it is one.
fn condition(only_if: OnlyIf) -> Option<Option<i64>> {
    match only_if {
        OnlyIf::Always => None,
        OnlyIf::Absent => Some(None),
        OnlyIf::Version(version) => Some(Some(version.get().cast_signed())),
    }
}

impl Statements {
    pub(in super::super::super) async fn write_documents(
        &self,
        at: &[u8],
        fence: &Fence,
        id: &[u8],
        writes: &[DocumentWrite],
    ) -> Result<Columns, DriverError> {
        let ours = &self.documents;
        let version = stored(fence.after.next());
        let epoch = fence.epoch.get().cast_signed();
        let incarnation = fence.incarnation.as_bytes().as_slice();
        // First: the first row of the answer shows its columns, in ScyllaDB as in Cassandra.
        let compared = (version, id, at, epoch, incarnation, stored(fence.after));
        let mut parts: Vec<(&PreparedStatement, Values<'_>)> = vec![(&ours.fence, Box::new(compared))];
        if fence.after == DocumentVersion::NONE {
            parts.push((&ours.opening, Box::new((at,))));
        }
        parts.extend(writes.iter().map(|write| -> (_, Values<'_>) {
            let place = rows::place(write.id().as_bytes());
            match (write, condition(write.only_if())) {
                (DocumentWrite::Put { body, .. }, None) => {
                    (&ours.put, Box::new((version, &**body, at, place)))
                }
                (DocumentWrite::Put { body, .. }, Some(stands)) => {
                    (&ours.put_if, Box::new((version, &**body, at, place, stands)))
                }
                (DocumentWrite::Delete { .. }, None) => (&ours.delete, Box::new((at, place))),
                (DocumentWrite::Delete { .. }, Some(stands)) => {
                    (&ours.delete_if, Box::new((at, place, stands)))
                }
            }
        }));
        let mut batch = ours.batch.clone();
        let mut values = Vec::with_capacity(parts.len());
        for (statement, of_it) in parts {
            batch.append_statement(statement.clone());
            values.push(of_it);
        }
        Columns::of(self.session.batch(&batch, values).await?)
    }

    pub(in super::super::super) async fn document(
        &self,
        at: &[u8],
        id: &DocumentId,
    ) -> Result<Option<Document>, DriverError> {
        let lookup = &self.documents.lookup;
        let answer = self.session.execute_unpaged(lookup, (at, rows::place(id.as_bytes()))).await?;
        Ok(rows::documents(answer)?.pop())
    }

    pub(in super::super::super) async fn scan_documents(
        &self,
        at: &[u8],
        scan: &Scan,
    ) -> Result<Page, DriverError> {
        let (first, end) = rows::scanned(scan);
        let limit = scan.limit.min(MAX_PAGE.into());
        let values = (at, first, end, limit as i32);
        let mut from = PagingState::start();
        loop {
            let scan = &self.documents.scan;
            let (answer, rest) = self.session.execute_single_page(scan, &values, from).await?;
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
