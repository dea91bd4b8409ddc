//! [`DocumentStorage`]: what fenced documents need of a database. The contract stands here, sentence by
//! sentence.

use super::{
    document::{Document, DocumentId, DocumentVersion},
    document_limits::DocumentLimits,
    document_write::DocumentWrite,
    error::{ReadError, WriteError},
    key::Key,
};
use crate::record::{Epoch, Incarnation, Slot};
use async_trait::async_trait;
use bytes::Bytes;
use std::{fmt::Debug, ops::Bound};

/// What must stand for a batch to be applied (I2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    /// The slot is held under this epoch …
    pub epoch: Epoch,
    /// … by this acquisition.
    pub incarnation: Incarnation,
    /// The last batch that the partition took is this one.
    pub after: DocumentVersion,
}

/// The outcome of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchOutcome {
    /// All of it stands there now, with the version after [`Fence::after`].
    Written,
    /// Nothing of it was written: the fence stands elsewhere, or a condition did not hold. Which, a read
    /// tells.
    Refused,
}

/// What a fence is compared with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FenceState {
    /// The leader record.
    pub slot: Slot,
    /// The last batch that the partition took.
    pub last: DocumentVersion,
}

impl FenceState {
    /// Whether a batch under `fence` would be applied now, its own conditions aside.
    pub fn admits(&self, fence: &Fence) -> bool {
        self.last == fence.after
            && self.slot.entry().is_some_and(|entry| entry.is_of(fence.incarnation, fence.epoch))
    }
}

/// Which documents a page shall have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scan {
    /// Only those whose ids begin with these bytes.
    pub prefix: Bytes,
    /// Only those behind this one.
    pub after: Option<DocumentId>,
    /// At most so many; [`DocumentLimits::max_page`] where that is less.
    pub limit: usize,
}

impl Scan {
    /// From where on ids belong to the scan, if they have its prefix.
    pub fn start(&self) -> Bound<&[u8]> {
        match &self.after {
            Some(after) if *after.as_bytes() >= *self.prefix => Bound::Excluded(after.as_bytes()),
            _ => Bound::Included(&self.prefix),
        }
    }

    /// The smallest id that is too large for the prefix; `None` where no id is.
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
    /// In the order of their ids. May be fewer than asked for, none at all included, although more follow.
    pub documents: Vec<Document>,
    /// Where the scan goes on ([`Scan::after`]); `None` at its end.
    pub next: Option<DocumentId>,
}

/// The storage of fenced documents: a capability beside [`TtlStorage`](crate::TtlStorage), in the same
/// partitions.
///
/// # Contract
/// 1. A batch is one atomic, linearizable step: applied whole or not at all.
/// 2. It applies exactly if the slot is held under the fence's epoch by the fence's incarnation, whatever the
///    record's version, *and* the last batch of the partition is [`Fence::after`], *and* every write's own
///    condition holds. (An empty batch is one, too.)
/// 3. Once applied, the partition's last batch is the one after [`Fence::after`], and that is the version of
///    every document that the batch put.
/// 4. The number of the last batch survives release, takeover, closing and reopening. It is a batch alone
///    that changes it: claims, renewals and releases do not.
/// 5. What applied is what the next `get` finds, byte for byte; deleted documents are not found.
/// 6. After `fence_state` has returned, `get` and `scan` show every batch up to [`FenceState::last`], whole.
///    `get` is linearizable; each document of a page was there, as it is shown, at some moment since the scan
///    was called.
/// 7. A scan shows every document of its range that stands all the while, once, in the order of their ids.
/// 8. Documents of different partitions don't meet, nor do documents and leader records, whatever bytes ids
///    have.
/// 9. Errors are those of [`TtlStorage`](crate::TtlStorage) (its sentence 9): all that is ambiguous is
///    [`WriteError::Unknown`], and such a batch may still be applied later, but only while its fence stands.
///
/// # Cancel safety
/// Dropping the future of a write is the same as [`WriteError::Unknown`]. Reads may be dropped at will.
#[async_trait]
pub trait DocumentStorage<K: Key>: Debug + Send + Sync + 'static {
    /// What this driver can carry. Ids and batches beyond it are refused with `Fatal`; a page has no more
    /// than it allows.
    fn document_limits(&self) -> DocumentLimits;

    /// Writes a batch, if the fence stands and all conditions hold.
    async fn write_documents(
        &self,
        key: &K,
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, WriteError>;

    /// What a fence would be compared with now; linearizable.
    async fn fence_state(&self, key: &K) -> Result<FenceState, ReadError>;

    /// One document; linearizable.
    async fn document(&self, key: &K, id: &DocumentId) -> Result<Option<Document>, ReadError>;

    /// One page of documents.
    async fn scan_documents(&self, key: &K, scan: &Scan) -> Result<Page, ReadError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_starts_at_its_prefix_or_behind_the_document_before() {
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
    fn a_prefix_ends_before_the_next_one() {
        let end =
            |prefix: &'static [u8]| Scan { prefix: Bytes::from_static(prefix), ..Scan::default() }.end();
        assert_eq!(end(b""), None);
        assert_eq!(end(b"a"), Some(b"b".to_vec()));
        assert_eq!(end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(end(b"\xff"), None);
    }
}
