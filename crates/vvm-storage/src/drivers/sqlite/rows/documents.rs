//! The rows of documents, and one row for each partition with the number of its last batch.
//!
//! A batch is several statements in a transaction with other writes. A savepoint undoes a batch that fails
//! half-way (a full disk) and leaves the other writes.

use super::{Rows, damaged};
use crate::{drivers::sqlite::errors::DriverError, key::Partition};
use bytes::Bytes;
use ielections::{
    Document, DocumentId, DocumentVersion, DocumentWrite, FenceState, Page, Scan, Slot, Vacant,
};
use rusqlite::{OptionalExtension, params};
use std::ops::Bound;

/// Not columns of `leader`: most slots have no documents, and a leader row is replaced as a whole.
pub(super) const DOCUMENTS: &str = "
    CREATE TABLE batch (
        pk BLOB PRIMARY KEY NOT NULL,
        last INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE document (
        pk BLOB NOT NULL,
        id BLOB NOT NULL,
        version INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (pk, id)
    ) STRICT, WITHOUT ROWID;
";

/// Reads record and batch number in one statement, at one moment. Only a leader writes a batch, so there is a
/// row in `leader` wherever there is one in `batch`.
const FENCE: &str = "
    SELECT epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace, last
    FROM leader LEFT JOIN batch USING (pk) WHERE pk = ?1";

const COUNT: &str = "INSERT OR REPLACE INTO batch (pk, last) VALUES (?1, ?2)";

const VERSION: &str = "SELECT version FROM document WHERE pk = ?1 AND id = ?2";

const PUT: &str = "INSERT OR REPLACE INTO document (pk, id, version, body) VALUES (?1, ?2, ?3, ?4)";

const DELETE: &str = "DELETE FROM document WHERE pk = ?1 AND id = ?2";

const READ: &str = "SELECT version, body FROM document WHERE pk = ?1 AND id = ?2";

const SCAN: &str = "SELECT id, version, body FROM document WHERE pk = ?1 AND id >= ?2 ORDER BY id";

/// A page ends with the document that reaches this size: reading it keeps the thread.
const PAGE_BYTES: usize = 1 << 20;

impl Rows<'_> {
    pub(in super::super) fn fence_state(&self, at: &Partition) -> Result<FenceState, DriverError> {
        let mut statement = self.connection.prepare_cached(FENCE)?;
        let mut rows = statement.query(params![at.as_bytes()])?;
        let Some(row) = rows.next()? else {
            let slot = Slot::Vacant(Vacant { last_epoch: None });
            return Ok(FenceState { slot, last: DocumentVersion::NONE });
        };
        let last = row.get::<_, Option<i64>>(8)?.map_or(DocumentVersion::NONE, version);
        Ok(FenceState { slot: self.decode(row)?, last })
    }

    pub(super) fn write_documents(
        &self,
        at: &Partition,
        version: DocumentVersion,
        batch: &[DocumentWrite],
    ) -> Result<(), DriverError> {
        let key = at.as_bytes();
        let number = version.get().cast_signed();
        self.all_or_nothing(|| {
            for write in batch {
                match write {
                    DocumentWrite::Put { id, body, .. } => {
                        self.run(PUT, params![key, id.as_bytes(), number, &**body])?;
                    }
                    DocumentWrite::Delete { id, .. } => self.run(DELETE, params![key, id.as_bytes()])?,
                }
            }
            self.run(COUNT, params![key, number])
        })
    }

    /// Undoes what `work` did if it fails. The rest of the transaction stays.
    fn all_or_nothing(&self, work: impl FnOnce() -> Result<(), DriverError>) -> Result<(), DriverError> {
        let run = |statement: &str| self.connection.prepare_cached(statement)?.execute([]);
        run("SAVEPOINT batch")?;
        let outcome = work();
        // If SQLite has rolled back the whole transaction, there is no savepoint.
        if outcome.is_err() && !self.connection.is_autocommit() {
            let undone = run("ROLLBACK TO batch");
            if undone.and_then(|_| run("RELEASE batch")).is_err() {
                // The batch must not be committed in part. The other writes are applied again.
                run("ROLLBACK")?;
            }
            return outcome;
        }
        if outcome.is_ok() {
            run("RELEASE batch")?;
        }
        outcome
    }

    pub(super) fn document_version(
        &self,
        at: &Partition,
        id: &DocumentId,
    ) -> Result<Option<DocumentVersion>, DriverError> {
        let mut statement = self.connection.prepare_cached(VERSION)?;
        let found =
            statement.query_row(params![at.as_bytes(), id.as_bytes()], |row| row.get(0)).optional()?;
        Ok(found.map(version))
    }

    pub(in super::super) fn document(
        &self,
        at: &Partition,
        id: &DocumentId,
    ) -> Result<Option<Document>, DriverError> {
        let mut statement = self.connection.prepare_cached(READ)?;
        let found = statement
            .query_row(params![at.as_bytes(), id.as_bytes()], |row| {
                Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?))
            })
            .optional()?;
        Ok(found.map(|(number, body)| Document {
            id: id.clone(),
            version: version(number),
            body: body.into(),
        }))
    }

    pub(in super::super) fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, DriverError> {
        let start = match scan.start() {
            // The next larger id is this one with a zero byte appended.
            Bound::Excluded(after) => [after, &[0]].concat(),
            Bound::Included(start) => start.to_vec(),
            Bound::Unbounded => Vec::new(),
        };
        let mut statement = self.connection.prepare_cached(SCAN)?;
        let mut rows = statement.query(params![at.as_bytes(), start])?;
        let (mut page, mut bytes) = (Page { documents: Vec::new(), next: None }, 0);
        while let Some(row) = rows.next()? {
            let id = DocumentId::new(row.get::<_, Vec<u8>>(0)?).map_err(damaged)?;
            if !scan.takes(&id) {
                break;
            }
            if page.documents.len() >= scan.limit || bytes >= PAGE_BYTES {
                page.next = page.documents.last().map(|last| last.id.clone());
                break;
            }
            let body = Bytes::from(row.get::<_, Vec<u8>>(2)?);
            bytes += body.len();
            page.documents.push(Document { id, version: version(row.get(1)?), body });
        }
        Ok(page)
    }
}

fn version(stored: i64) -> DocumentVersion {
    DocumentVersion::from_stored(stored.cast_unsigned())
}
