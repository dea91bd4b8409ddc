//! The rows of documents, the statements of their verbs, and their answers. A document is a row of its slot's
//! partition, so one transaction compares the leader record (static columns) and writes rows.
//!
//! The first batch creates an empty first row, which is never deleted: to check static columns, the server
//! reads up to the first live row, and would otherwise read thousands of tombstones.

use super::{
    super::errors::{Damaged, DriverError},
    TABLE,
};
use ::scylla::response::query_result::QueryResult;
use bytes::Bytes;
use ielections::{Document, DocumentId, DocumentVersion, Scan};
use std::ops::Bound;

/// The clustering key of the first row.
const FIRST: &str = "0x00";

/// The first byte of a document's clustering key.
const DOCUMENT: u8 = 1;

/// The first clustering key after all documents.
const END: [u8; 1] = [DOCUMENT + 1];

/// The statement that fences and counts a batch. Its last comparison is always true. It makes a refusal show
/// the id.
pub(in super::super) fn fence(keyspace: &str) -> String {
    format!(
        "UPDATE \"{keyspace}\".{TABLE} SET last_batch = ?, last_batch_id = ? WHERE pk = ? \
         IF epoch = ? AND incarnation = ? AND last_batch = ? AND last_batch_id != 0x"
    )
}

/// Creates the first row.
pub(in super::super) fn opening(keyspace: &str) -> String {
    format!("INSERT INTO \"{keyspace}\".{TABLE} (pk, cc) VALUES (?, {FIRST})")
}

pub(in super::super) fn put(keyspace: &str) -> String {
    format!("UPDATE \"{keyspace}\".{TABLE} SET version = ?, value = ? WHERE pk = ? AND cc = ?")
}

/// Compares the version; null if there must be no document.
pub(in super::super) fn put_if(keyspace: &str) -> String {
    put(keyspace) + " IF version = ?"
}

pub(in super::super) fn delete(keyspace: &str) -> String {
    format!("DELETE FROM \"{keyspace}\".{TABLE} WHERE pk = ? AND cc = ?")
}

pub(in super::super) fn delete_if(keyspace: &str) -> String {
    delete(keyspace) + " IF version = ?"
}

pub(in super::super) fn lookup(keyspace: &str) -> String {
    format!("SELECT cc, version, value FROM \"{keyspace}\".{TABLE} WHERE pk = ? AND cc = ?")
}

pub(in super::super) fn scan(keyspace: &str) -> String {
    format!(
        "SELECT cc, version, value FROM \"{keyspace}\".{TABLE} WHERE pk = ? AND cc >= ? AND cc < ? LIMIT ?"
    )
}

/// Returns the clustering key of a document.
pub(in super::super) fn place(id: &[u8]) -> Vec<u8> {
    let mut place = Vec::with_capacity(1 + id.len());
    place.push(DOCUMENT);
    place.extend_from_slice(id);
    place
}

/// Returns the first clustering key of a scan, and the first one after it.
pub(in super::super) fn scanned(scan: &Scan) -> (Vec<u8>, Vec<u8>) {
    let first = match scan.start() {
        Bound::Included(id) => place(id),
        // The next larger id is this one with a zero byte appended.
        Bound::Excluded(id) => [&place(id)[..], &[0]].concat(),
        Bound::Unbounded => place(&[]),
    };
    (first, scan.end().map_or(END.to_vec(), |end| place(&end)))
}

/// Returns the documents of an answer.
pub(in super::super) fn documents(answer: QueryResult) -> Result<Vec<Document>, DriverError> {
    let unreadable = |cause: &dyn ToString| DriverError::Unreadable(cause.to_string().into());
    let rows = answer.into_rows_result().map_err(|cause| unreadable(&cause))?;
    let rows = rows.rows::<(&[u8], Option<i64>, Option<&[u8]>)>().map_err(|cause| unreadable(&cause))?;
    rows.map(|row| {
        let (place, version, body) = row.map_err(|cause| unreadable(&cause))?;
        Ok(document(place, version, body)?)
    })
    .collect()
}

fn document(place: &[u8], version: Option<i64>, body: Option<&[u8]>) -> Result<Document, Damaged> {
    let damaged = |what: &str| Damaged(format!("{what} at {}", place.escape_ascii()));
    let id = place.strip_prefix(&[DOCUMENT]).ok_or_else(|| damaged("a row that is not a document"))?;
    let id = DocumentId::new(Bytes::copy_from_slice(id)).map_err(|_| damaged("a document without an id"))?;
    let (Some(version), Some(body)) = (version, body) else {
        return Err(damaged("a document without version or body"));
    };
    let version = DocumentVersion::from_stored(version.cast_unsigned());
    Ok(Document { id, version, body: Bytes::copy_from_slice(body) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_covers_exactly_its_prefix() {
        let scan = |prefix: &'static [u8], after: &'static [u8]| {
            let after = DocumentId::new(after).ok();
            scanned(&Scan { prefix: Bytes::from_static(prefix), after, limit: 1 })
        };
        assert_eq!(scan(b"", b""), (b"\x01".to_vec(), b"\x02".to_vec()));
        assert_eq!(scan(b"a", b""), (b"\x01a".to_vec(), b"\x01b".to_vec()));
        assert_eq!(scan(b"a", b"ab"), (b"\x01ab\0".to_vec(), b"\x01b".to_vec()));
        assert_eq!(scan(b"\xff", b""), (b"\x01\xff".to_vec(), b"\x02".to_vec()));
    }

    #[test]
    fn document_is_read_and_a_malformed_one_is_damaged() {
        let told = document(b"\x01name", Some(5), Some(b"")).unwrap();
        assert_eq!((told.id.as_bytes(), told.version.get(), &*told.body), (&b"name"[..], 5, &b""[..]));
        for (place, version, body) in [
            (&b"\x02name"[..], Some(5), Some(&b"body"[..])),
            (b"\x01", Some(5), Some(b"body")),
            (b"", Some(5), Some(b"body")),
            (b"\x01name", None, Some(b"body")),
            (b"\x01name", Some(5), None),
        ] {
            assert!(document(place, version, body).is_err(), "{place:?} {version:?} {body:?}");
        }
    }
}
