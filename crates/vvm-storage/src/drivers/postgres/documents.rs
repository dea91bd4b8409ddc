//! Documents: a row each. The count of a partition's batches is a column of its leader record, whose row
//! survives every release.

use super::{
    errors::Damaged,
    history::{Compared, History, holds},
    message::{Hex, Row},
    rows::version,
};
use crate::key::Partition;
use ielections::{Document, DocumentId, DocumentWrite, Fence, OnlyIf, Page, Scan};
use std::ops::Bound;

/// A page ends behind the document with which it has so many bytes.
const PAGE_BYTES: usize = 1 << 20;

/// Writes a batch, and returns one row if it did. The leader record has to be locked before, in the same
/// transaction: every batch locks it, so this statement sees all that came before.
pub(super) fn write(at: &Partition, fence: &Fence, batch: &[DocumentWrite], history: &History) -> String {
    let pk = Hex(at.as_bytes());
    let number = fence.after.next().get().cast_signed();
    let conditions: String = batch.iter().filter_map(|write| condition(&pk, write)).collect();
    let (mut puts, mut deletions) = (Vec::new(), Vec::new());
    for write in batch {
        match write {
            DocumentWrite::Put { id, body, .. } => {
                puts.push(format!("({}, {})", Hex(id.as_bytes()), Hex(body)));
            }
            DocumentWrite::Delete { id, .. } => deletions.push(Hex(id.as_bytes()).to_string()),
        }
    }
    let mut text = format!(
        "WITH counted AS (UPDATE sysvvm.leader SET last_batch = {number} \
            WHERE pk = {pk} AND epoch = {} AND incarnation = {} AND last_batch = {}{conditions} AND {} \
            RETURNING true)",
        fence.epoch,
        Hex(fence.incarnation.as_bytes()),
        fence.after.get().cast_signed(),
        holds(Compared::Server, &Hex(history.witness()).to_string(), "true"),
    );
    if !puts.is_empty() {
        text += &format!(
            ", put AS (INSERT INTO sysvvm.document (pk, id, version, body) \
                SELECT {pk}, v.id, {number}, v.body FROM counted, (VALUES {}) v (id, body) \
                ON CONFLICT (pk, id) DO UPDATE SET version = excluded.version, body = excluded.body)",
            puts.join(", ")
        );
    }
    if !deletions.is_empty() {
        text += &format!(
            ", deleted AS (DELETE FROM sysvvm.document d USING counted WHERE d.pk = {pk} AND d.id IN ({}))",
            deletions.join(", ")
        );
    }
    text + " SELECT FROM counted"
}

fn condition(pk: &Hex<'_>, write: &DocumentWrite) -> Option<String> {
    let id = Hex(write.id().as_bytes());
    let stands = format!("EXISTS (SELECT FROM sysvvm.document WHERE pk = {pk} AND id = {id}");
    match write.only_if() {
        OnlyIf::Always => None,
        OnlyIf::Absent => Some(format!(" AND NOT {stands})")),
        OnlyIf::Version(expected) => {
            Some(format!(" AND {stands} AND version = {})", expected.get().cast_signed()))
        }
    }
}

pub(super) fn document(at: &Partition, id: &DocumentId) -> String {
    format!(
        "SELECT encode(id, 'hex'), version, encode(body, 'hex') FROM sysvvm.document \
         WHERE pk = {} AND id = {}",
        Hex(at.as_bytes()),
        Hex(id.as_bytes())
    )
}

/// Shows one page. Lengths are known without reading the bodies.
pub(super) fn page(at: &Partition, scan: &Scan) -> String {
    let start = match scan.start() {
        Bound::Excluded(after) => format!(" AND id > {}", Hex(after)),
        Bound::Included(start) => format!(" AND id >= {}", Hex(start)),
        Bound::Unbounded => String::new(),
    };
    let end = scan.end().map_or(String::new(), |end| format!(" AND id < {}", Hex(&end)));
    format!(
        "SELECT encode(id, 'hex'), version, encode(body, 'hex'), found FROM (\
            SELECT id, version, body, count(*) OVER () AS found, row_number() OVER (ORDER BY id) AS at, \
                sum(octet_length(body)) OVER (ORDER BY id) - octet_length(body) AS before FROM (\
                    SELECT id, version, body FROM sysvvm.document WHERE pk = {}{start}{end} \
                    ORDER BY id LIMIT {}) each) measured \
         WHERE before < {PAGE_BYTES} AND at <= {} ORDER BY id",
        Hex(at.as_bytes()),
        scan.limit + 1,
        scan.limit,
    )
}

/// The document that [`document`] and [`page`] show.
pub(super) fn shown(row: &Row) -> Result<Document, Damaged> {
    let id = DocumentId::new(row.bytes(0)?).map_err(Damaged::of)?;
    Ok(Document { id, version: version(row.number(1)?), body: row.bytes(2)?.into() })
}

/// The page that these rows are.
pub(super) fn shown_page(rows: &[Row]) -> Result<Page, Damaged> {
    let documents = rows.iter().map(shown).collect::<Result<Vec<_>, _>>()?;
    let found = rows.first().map_or(Ok(0), |row| row.number(3))?;
    let is_whole = usize::try_from(found).is_ok_and(|found| found <= documents.len());
    let next = documents.last().filter(|_| !is_whole).map(|last| last.id.clone());
    Ok(Page { documents, next })
}
