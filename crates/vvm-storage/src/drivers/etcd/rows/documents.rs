//! Documents: a key each, `d`, the length of the partition, the partition and the id. A value is the number
//! of the batch that wrote it, one byte, and the body.

use super::{
    super::errors::Damaged,
    BATCH, Keyspace, end_of, leadership_of,
    messages::{KeyValue, RangeRequest, RangeResponse, TxnRequest},
    operations::{absent, begins_with, delete, equal, page, put, range},
    reads,
};
use crate::key::Partition;
use bytes::{BufMut, Bytes, BytesMut};
use ielections::{Document, DocumentId, DocumentVersion, DocumentWrite, Fence, OnlyIf, Page, Scan};
use std::ops::Bound;

const DOCUMENT: u8 = b'd';

/// Stands between number and body, so that a value with an empty body is longer than its number, too.
const SEPARATOR: u8 = 0;

impl Keyspace {
    /// What the keys of a partition's documents begin with.
    fn documents(&self, at: &Partition) -> Vec<u8> {
        // Keys are limited to far less.
        let length = (at.as_bytes().len() as u16).to_be_bytes();
        [&self.prefix, &[DOCUMENT][..], &length, at.as_bytes()].concat()
    }

    fn document_key(&self, at: &Partition, id: &[u8]) -> Bytes {
        [&self.documents(at), id].concat().into()
    }

    /// Writes a batch, if the fence and all conditions hold.
    pub(in super::super) fn write_documents(
        &self,
        at: &Partition,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> TxnRequest {
        let (counted, number) = (self.key(BATCH, at), fence.after.next());
        let mut compare = vec![equal(self.leader(at), leadership_of(fence.epoch, fence.incarnation))];
        compare.push(match fence.after {
            DocumentVersion::NONE => absent(counted.clone()),
            after => equal(counted.clone(), stored(after)),
        });
        let mut writes = vec![put(counted, stored(number))];
        for write in batch {
            let key = self.document_key(at, write.id().as_bytes());
            match write.only_if() {
                OnlyIf::Always => {}
                OnlyIf::Absent => compare.push(absent(key.clone())),
                OnlyIf::Version(version) => compare.extend(begins_with(&key, &stored(version))),
            }
            writes.push(match write {
                DocumentWrite::Put { body, .. } => put(key, value(number, body)),
                DocumentWrite::Delete { .. } => delete(key),
            });
        }
        self.write(at, compare, writes)
    }

    pub(in super::super) fn document(&self, at: &Partition, id: &DocumentId) -> TxnRequest {
        reads(vec![range(self.own()), range(self.document_key(at, id.as_bytes()))])
    }

    pub(in super::super) fn documents_page(&self, at: &Partition, scan: &Scan) -> TxnRequest {
        let key = match scan.start() {
            // The next key in the order of bytes.
            Bound::Excluded(after) => [&self.document_key(at, after), &[0][..]].concat().into(),
            Bound::Included(start) => self.document_key(at, start),
            Bound::Unbounded => self.document_key(at, b""),
        };
        let range_end = match scan.end() {
            Some(end) => self.document_key(at, &end),
            None => end_of(&self.documents(at)),
        };
        let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX);
        reads(vec![range(self.own()), page(RangeRequest { key, range_end, limit, serializable: false })])
    }

    /// The document that a key and its value are.
    fn shown_document(&self, at: &Partition, shown: KeyValue) -> Result<Document, Damaged> {
        let id = shown.key.slice(self.documents(at).len().min(shown.key.len())..);
        let (number, rest) =
            shown.value.split_first_chunk().ok_or_else(|| Damaged::of("a short document"))?;
        if rest.first() != Some(&SEPARATOR) {
            return Err(Damaged::of("a document of another format"));
        }
        let version = DocumentVersion::from_stored(u64::from_be_bytes(*number));
        let body = shown.value.slice(number.len() + 1..);
        Ok(Document { id: DocumentId::new(id).map_err(Damaged::of)?, version, body })
    }
}

/// The document of an answer to [`Keyspace::document`].
pub(in super::super) fn document_of(
    keyspace: &Keyspace,
    at: &Partition,
    ranges: Vec<RangeResponse>,
) -> Result<Option<Document>, Damaged> {
    let shown = ranges.into_iter().flat_map(|range| range.kvs).next();
    shown.map(|shown| keyspace.shown_document(at, shown)).transpose()
}

/// The page of an answer to [`Keyspace::documents_page`].
pub(in super::super) fn page_of(
    keyspace: &Keyspace,
    at: &Partition,
    ranges: Vec<RangeResponse>,
) -> Result<Page, Damaged> {
    let Some(range) = ranges.into_iter().next() else { return Err(Damaged::of("an answer without a page")) };
    let shown = range.kvs.into_iter().map(|shown| keyspace.shown_document(at, shown));
    let documents = shown.collect::<Result<Vec<_>, _>>()?;
    let next = documents.last().filter(|_| range.more).map(|last| last.id.clone());
    Ok(Page { documents, next })
}

fn stored(number: DocumentVersion) -> Bytes {
    Bytes::copy_from_slice(&number.get().to_be_bytes())
}

fn value(number: DocumentVersion, body: &Bytes) -> Bytes {
    let mut value = BytesMut::with_capacity(size_of::<u64>() + 1 + body.len());
    value.put_u64(number.get());
    value.put_u8(SEPARATOR);
    value.put_slice(body);
    value.freeze()
}
