//! The rows of documents, in one tree: those of a partition are neighbours.
//!
//! | key | value |
//! |---|---|
//! | 0, partition | number of the partition, number of its last batch |
//! | 1, number of the partition, id | number of the batch that put it, body |
//!
//! Numbers have 8 bytes, big-endian. One tree, because sled writes a batch to one tree as a whole. A number
//! in place of the partition keeps keys short: sled writes up to 17 neighbours as one page, and moves a page
//! of 128 KiB or more into a file that it does not sync.

use super::{Rows, damaged};
use crate::{drivers::sled::errors::DriverError, key::Partition};
use bytes::Bytes;
use ielections::{Document, DocumentId, DocumentVersion, DocumentWrite, FenceState, Page, Scan, WriteError};
use std::ops::Bound;

/// A partition with at least one batch.
struct Count {
    /// The number in the keys of its documents. No other partition ever has it.
    partition: [u8; 8],
    last: DocumentVersion,
}

impl Rows {
    fn count(&self, at: &Partition) -> Result<Option<Count>, DriverError> {
        let Some(row) = self.documents.get(count_key(at))? else { return Ok(None) };
        let (partition, last) = row.split_first_chunk().ok_or_else(short)?;
        Ok(Some(Count { partition: *partition, last: decode(last)?.0 }))
    }

    pub(in super::super) fn fence_state(&self, at: &Partition) -> Result<FenceState, DriverError> {
        let last = self.count(at)?.map_or(DocumentVersion::NONE, |count| count.last);
        Ok(FenceState { slot: self.slot(at)?, last })
    }

    pub(super) fn write_documents(
        &self,
        at: &Partition,
        version: DocumentVersion,
        batch: &[DocumentWrite],
    ) -> Result<(), WriteError> {
        let partition = self.number(at).map_err(DriverError::before_write)?;
        let mut writes = ::sled::Batch::default();
        for write in batch {
            match write {
                DocumentWrite::Put { id, body, .. } => {
                    writes.insert(key(partition, id.as_bytes()), [&number(version), &**body].concat());
                }
                DocumentWrite::Delete { id, .. } => writes.remove(key(partition, id.as_bytes())),
            }
        }
        writes.insert(count_key(at), [partition, number(version)].concat());
        self.documents.apply_batch(writes).map_err(|error| DriverError::from(error).while_writing())
    }

    /// Returns the partition's number, or a new one.
    fn number(&self, at: &Partition) -> Result<[u8; 8], DriverError> {
        match self.count(at)? {
            Some(count) => Ok(count.partition),
            // If the batch fails, the number stays unused.
            None => Ok(self.database.generate_id()?.to_be_bytes()),
        }
    }

    pub(in super::super) fn document(
        &self,
        at: &Partition,
        id: &DocumentId,
    ) -> Result<Option<Document>, DriverError> {
        let Some(Count { partition, .. }) = self.count(at)? else { return Ok(None) };
        let Some(row) = self.documents.get(key(partition, id.as_bytes()))? else { return Ok(None) };
        let (version, body) = decode(&row)?;
        Ok(Some(Document { id: id.clone(), version, body: Bytes::copy_from_slice(body) }))
    }

    pub(in super::super) fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, DriverError> {
        let mut page = Page { documents: Vec::new(), next: None };
        let Some(Count { partition, .. }) = self.count(at)? else { return Ok(page) };
        let start = scan.start().map(|id| key(partition, id));
        let partition = key(partition, &[]);
        for row in self.documents.range((start, Bound::Unbounded)) {
            let (key, row) = row?;
            let Some(id) = key.strip_prefix(&*partition) else { break };
            let id = DocumentId::new(Bytes::copy_from_slice(id)).map_err(damaged)?;
            if !scan.takes(&id) {
                break;
            }
            if page.documents.len() >= scan.limit {
                page.next = page.documents.last().map(|last| last.id.clone());
                break;
            }
            let (version, body) = decode(&row)?;
            page.documents.push(Document { id, version, body: Bytes::copy_from_slice(body) });
        }
        Ok(page)
    }
}

fn count_key(at: &Partition) -> Vec<u8> {
    [&[0], at.as_bytes()].concat()
}

fn key(partition: [u8; 8], id: &[u8]) -> Vec<u8> {
    [&[1], &partition[..], id].concat()
}

fn number(version: DocumentVersion) -> [u8; 8] {
    version.get().to_be_bytes()
}

fn decode(row: &[u8]) -> Result<(DocumentVersion, &[u8]), DriverError> {
    let (version, body) = row.split_first_chunk().ok_or_else(short)?;
    Ok((DocumentVersion::from_stored(u64::from_be_bytes(*version)), body))
}

fn short() -> DriverError {
    damaged("a row of a document is too short")
}
