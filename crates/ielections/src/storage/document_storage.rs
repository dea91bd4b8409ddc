//! [`DocumentStorage`]: the storage interface of fenced documents, with its contract.

use super::{
    Key, ReadError, WriteError,
    document::DocumentLimits,
    document::DocumentWrite,
    document::{Document, DocumentId, DocumentVersion},
};
use crate::record::{Epoch, Incarnation, Slot};
use async_trait::async_trait;
use bytes::Bytes;
use std::{fmt::Debug, ops::Bound};

/// The condition under which a batch is applied (I2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    /// The epoch of the record in the slot.
    pub epoch: Epoch,
    /// The incarnation of the record in the slot.
    pub incarnation: Incarnation,
    /// The last batch of the partition.
    pub after: DocumentVersion,
}

/// The outcome of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchOutcome {
    /// Applied, with the version after [`Fence::after`].
    Written,
    /// Not applied: the fence does not match, or a condition does not hold. A read shows which.
    Refused,
}

/// The state that a fence is compared with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FenceState {
    /// The leader record.
    pub slot: Slot,
    /// The last batch of the partition.
    pub last: DocumentVersion,
}

impl FenceState {
    /// Whether a batch under `fence` would be applied now, if all its conditions hold.
    pub fn admits(&self, fence: &Fence) -> bool {
        self.last == fence.after
            && self.slot.entry().is_some_and(|entry| entry.is_of(fence.incarnation, fence.epoch))
    }
}

/// Selects documents.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scan {
    /// Only documents whose ids begin with these bytes.
    pub prefix: Bytes,
    /// Only documents after this id.
    pub after: Option<DocumentId>,
    /// At most this number of documents, or [`DocumentLimits::max_page`] if that is less.
    pub limit: usize,
}

impl Scan {
    /// Where the scan starts.
    pub fn start(&self) -> Bound<&[u8]> {
        match &self.after {
            Some(after) if *after.as_bytes() >= *self.prefix => Bound::Excluded(after.as_bytes()),
            _ => Bound::Included(&self.prefix),
        }
    }

    /// The smallest id after all ids with the prefix; `None` if there is none.
    pub fn end(&self) -> Option<Vec<u8>> {
        let kept = self.prefix.iter().rposition(|byte| *byte != u8::MAX)?;
        let mut end = self.prefix.slice(..=kept).to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        Some(end)
    }

    /// Whether a document of this id belongs to the scan.
    pub fn takes(&self, id: &DocumentId) -> bool {
        id.as_bytes().starts_with(&self.prefix) && self.after.as_ref().is_none_or(|after| id > after)
    }
}

/// Part of a scan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// In the order of their ids. May be fewer than requested, or none, although more follow.
    pub documents: Vec<Document>,
    /// Where the scan goes on ([`Scan::after`]); `None` at its end.
    pub next: Option<DocumentId>,
}

/// The storage of fenced documents: a capability beside [`TtlStorage`](crate::TtlStorage), in the same
/// partitions.
///
/// # Contract
/// 1. A batch is one atomic, linearizable step: applied whole or not at all.
/// 2. It applies exactly if the slot is held under the fence's epoch by the fence's incarnation, in any
///    version of the record, *and* the last batch of the partition is [`Fence::after`], *and* the condition
///    of every write holds. An empty batch counts, too.
/// 3. Once applied, the partition's last batch is the one after [`Fence::after`], and that is the version of
///    every document that the batch put.
/// 4. The number of the last batch survives release, take-over, closing and reopening. Only a batch changes
///    it: claims, renewals and releases do not.
/// 5. The next `get` returns an applied document byte for byte, and none that was deleted.
/// 6. After `fence_state` has returned, `get` and `scan` show every batch up to [`FenceState::last`], whole.
///    `get` is linearizable. Each document of a page existed in that version at some moment since the call of
///    the scan.
/// 7. A scan shows each document of its range that exists during the whole scan exactly once, in the order of
///    the ids.
/// 8. Documents of different partitions are independent, and so are documents and leader records, whatever
///    bytes ids have.
/// 9. Errors are those of [`TtlStorage`](crate::TtlStorage) (its sentence 9): everything ambiguous is
///    [`WriteError::Unknown`]. Such a batch may still be applied later, but only while its fence matches.
///
/// # Cancel safety
/// Dropping the future of a write is the same as [`WriteError::Unknown`]. Reads may be dropped at will.
#[async_trait]
pub trait DocumentStorage<K: Key>: Debug + Send + Sync + 'static {
    /// The limits of this driver. It refuses larger ids and batches with `Fatal`, and returns no larger page.
    fn document_limits(&self) -> DocumentLimits;

    /// Writes a batch, if the fence matches and all conditions hold.
    async fn write_documents(
        &self,
        key: &K,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError>;

    /// Reads the state that a fence is compared with; linearizable.
    async fn fence_state(&self, key: &K) -> Result<FenceState, ReadError>;

    /// Reads one document; linearizable.
    async fn document(&self, key: &K, id: &DocumentId) -> Result<Option<Document>, ReadError>;

    /// Reads one page of documents.
    async fn scan_documents(&self, key: &K, scan: &Scan) -> Result<Page, ReadError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_starts_at_its_prefix_or_after_the_given_document() {
        let scan = |after: &'static [u8]| Scan {
            prefix: Bytes::from_static(b"b"),
            after: DocumentId::new(after).ok(),
            limit: 1,
        };
        assert_eq!(scan(b"").start(), Bound::Included(&b"b"[..]));
        assert_eq!(scan(b"a").start(), Bound::Included(&b"b"[..]));
        assert_eq!(scan(b"b").start(), Bound::Excluded(&b"b"[..]));
        assert_eq!(scan(b"bc").start(), Bound::Excluded(&b"bc"[..]));
    }

    #[test]
    fn scan_ends_before_the_next_prefix() {
        let end =
            |prefix: &'static [u8]| Scan { prefix: Bytes::from_static(prefix), ..Scan::default() }.end();
        assert_eq!(end(b""), None);
        assert_eq!(end(b"a"), Some(b"b".to_vec()));
        assert_eq!(end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(end(b"\xff"), None);
    }
}
