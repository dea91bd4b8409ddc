//! How documents are laid out, the statements of their verbs, and what rows say.
//!
//! A document is a row of its slot's partition, so that one transaction compares the leader record, which is
//! the static columns, and writes rows. Static, too, are the number of the last batch, null before the first
//! one, and an id that is drawn for each.
//!
//! The first row of such a partition, which the first batch makes and nobody deletes, says nothing. It is
//! there to be found: a condition on static columns, a renewal's for one, has the server look for the first
//! row that lives, and it would walk over the tombstones of deleted documents, of which there may be
//! thousands.

use super::{
    super::errors::{Damaged, DriverError},
    TABLE,
};
use ::scylla::response::query_result::QueryResult;
use bytes::Bytes;
use ielections::{Document, DocumentId, DocumentVersion, Scan};
use std::ops::Bound;

/// The first row.
const FIRST: &str = "0x00";

/// The first byte of a document's place: behind the first row.
const DOCUMENT: u8 = 1;

/// The first place behind all documents.
const END: [u8; 1] = [DOCUMENT + 1];

/// What fences a batch, and counts it. The last comparison is true of whatever was ever written. It is there
/// to have the id shown in a refusal.
pub(in super::super) fn fence(keyspace: &str) -> String {
    format!(
        "UPDATE \"{keyspace}\".{TABLE} SET last_batch = ?, last_batch_id = ? WHERE pk = ? \
         IF epoch = ? AND incarnation = ? AND last_batch = ? AND last_batch_id != 0x"
    )
}

/// Makes the first row.
pub(in super::super) fn opening(keyspace: &str) -> String {
    format!("INSERT INTO \"{keyspace}\".{TABLE} (pk, cc) VALUES (?, {FIRST})")
}

pub(in super::super) fn put(keyspace: &str) -> String {
    format!("UPDATE \"{keyspace}\".{TABLE} SET version = ?, value = ? WHERE pk = ? AND cc = ?")
}

/// On the version that stands; null where none shall.
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

/// Where a document stands.
pub(in super::super) fn place(id: &[u8]) -> Vec<u8> {
    let mut place = Vec::with_capacity(1 + id.len());
    place.push(DOCUMENT);
    place.extend_from_slice(id);
    place
}

/// The first place of a scan, and the first one behind it.
pub(in super::super) fn scanned(scan: &Scan) -> (Vec<u8>, Vec<u8>) {
    let first = match scan.start() {
        Bound::Included(id) => place(id),
        // No id lies between one and the same with a zero behind it.
        Bound::Excluded(id) => [&place(id)[..], &[0]].concat(),
        Bound::Unbounded => place(&[]),
    };
    (first, scan.end().map_or(END.to_vec(), |end| place(&end)))
}

/// The documents of an answer.
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
    let id = place.strip_prefix(&[DOCUMENT]).ok_or_else(|| damaged("a document that is none"))?;
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
    fn a_scan_has_the_documents_of_its_prefix_and_nothing_else() {
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
    fn a_document_is_told_and_a_damaged_one_is_not_left_out() {
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
