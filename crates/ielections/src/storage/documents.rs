//! [`DocumentStorage`]: the storage interface of fenced documents, with its contract. [`Document`], id and version.

use super::{Key, ReadError, WriteError};
use crate::record::{Epoch, Incarnation, Slot};
use async_trait::async_trait;
use bytes::Bytes;
use std::{borrow::Borrow, fmt, ops::Bound};

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
    /// At most this number of documents, or [`DocumentLimits::max_page`] if that is less. At least one: 0 counts as 1.
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
    /// The [`Scan::after`] of the next page: the last id that this one covers. `None` at the end of the scan.
    pub next: Option<DocumentId>,
}

/// The storage of fenced documents: a capability beside [`TtlStorage`](crate::TtlStorage), in the same partitions.
///
/// # Contract
/// 1. A batch is one atomic, linearizable step: applied whole or not at all.
/// 2. It applies exactly if the slot is held under the fence's epoch by the fence's incarnation, in any
///    version of the record, *and* the last batch of the partition is [`Fence::after`], *and* the condition
///    of every write holds. An empty batch counts, too.
/// 3. Once applied, the partition's last batch is the one after [`Fence::after`], and that is the version of
///    every document that the batch put.
/// 4. Only a batch changes the number of the last batch. It survives claims, renewals, releases, closing and reopening.
/// 5. The next `get` returns an applied document byte for byte, and none that was deleted.
/// 6. After `fence_state` has returned, `get` and `scan` show every batch up to [`FenceState::last`], whole. `get` is
///    linearizable. Each document of a page existed so at some moment since the call of the scan.
/// 7. A scan shows each document of its range that exists all the while exactly once, in the order of the ids.
/// 8. Documents of different partitions are independent, as are documents and leader records, whatever bytes ids have.
/// 9. Errors are those of [`TtlStorage`](crate::TtlStorage) (its sentence 9): everything ambiguous is
///    [`WriteError::Unknown`]. Such a batch may still be applied later, but only while its fence matches.
///
/// # Cancel safety
/// Dropping the future of a write is the same as [`WriteError::Unknown`]. Reads may be dropped at will.
#[async_trait]
pub trait DocumentStorage<K: Key>: fmt::Debug + Send + Sync + 'static {
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

/// Identifies a document in its slot: any bytes, at least one. Scans return documents in the byte order of their ids.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentId(Bytes);

/// The id is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a document's id may not be empty")]
pub struct NotAnId;

impl DocumentId {
    /// Fails if there are no bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, NotAnId> {
        let bytes = bytes.into();
        if bytes.is_empty() { Err(NotAnId) } else { Ok(Self(bytes)) }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Copies the id. An id that is part of a larger buffer keeps that buffer alive.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }
}

/// For look-ups by bytes.
impl Borrow<[u8]> for DocumentId {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for DocumentId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "document {}", self.0.escape_ascii())
    }
}

impl fmt::Display for DocumentId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(out)
    }
}

/// The batch that wrote a document: its number among all batches of the partition. Numbers rise over leaderships and
/// restarts and never repeat, so a document that was deleted and put again has another version.
///
/// At most `i64::MAX`, as an [`Epoch`] is, and for the same reason.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DocumentVersion(u64);

impl DocumentVersion {
    /// The count of a new partition: no batch was written.
    pub const NONE: Self = Self(0);

    /// The largest. A partition that has counted so far is damaged.
    pub const MAX: u64 = i64::MAX as u64;

    /// A version that was read from a storage.
    pub const fn from_stored(number: u64) -> Self {
        Self(number)
    }

    /// The version of the next batch. Storages refuse a batch after [`MAX`](Self::MAX), so none repeats.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for DocumentVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "batch {}", self.0)
    }
}

impl fmt::Display for DocumentVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A document, as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Document {
    /// Its id.
    pub id: DocumentId,
    /// The batch that wrote it.
    pub version: DocumentVersion,
    /// Its content. May be empty.
    pub body: Bytes,
}

/// One write of a batch. A batch has at most one for each document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DocumentWrite {
    /// Writes the document, or replaces it.
    Put {
        /// The document.
        id: DocumentId,
        /// Its new content.
        body: Bytes,
        /// Its condition.
        only_if: OnlyIf,
    },
    /// Removes the document. It is no error if there is none, unless the condition fails.
    Delete {
        /// The document.
        id: DocumentId,
        /// Its condition.
        only_if: OnlyIf,
    },
}

/// The condition of one write. If it does not hold, the whole batch is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnlyIf {
    /// No condition beside the fence.
    Always,
    /// The document does not exist.
    Absent,
    /// The document exists with exactly this version.
    Version(DocumentVersion),
}

impl DocumentWrite {
    /// The document that it writes.
    pub fn id(&self) -> &DocumentId {
        match self {
            Self::Put { id, .. } | Self::Delete { id, .. } => id,
        }
    }

    /// Its condition.
    pub fn only_if(&self) -> OnlyIf {
        match self {
            Self::Put { only_if, .. } | Self::Delete { only_if, .. } => *only_if,
        }
    }

    /// How many bytes of the caller's it carries: those of the id and of the body.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Put { id, body, .. } => id.as_bytes().len() + body.len(),
            Self::Delete { id, .. } => id.as_bytes().len(),
        }
    }
}

impl OnlyIf {
    /// Whether it holds for a document with this version; `None` if there is no document.
    pub fn holds(self, version: Option<DocumentVersion>) -> bool {
        match self {
            Self::Always => true,
            Self::Absent => version.is_none(),
            Self::Version(expected) => version == Some(expected),
        }
    }
}

/// The limits of a driver for documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DocumentLimits {
    /// The longest id, in bytes.
    pub max_id_bytes: usize,
    /// The longest body, in bytes.
    pub max_body_bytes: usize,
    /// How many documents one batch may write.
    pub max_batch: usize,
    /// The largest batch in bytes, ids and bodies together. At least as large as the largest document.
    pub max_batch_bytes: usize,
    /// How many documents one page of a scan may have.
    pub max_page: usize,
}

/// A batch is larger than [`DocumentLimits`] allow, or has two writes of one document.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BeyondDocumentLimits {
    /// An id is too long.
    #[error("an id of {bytes} bytes is too long for this storage, which takes {most}")]
    Id {
        /// Its size.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// A body is too long.
    #[error(
        "document {id} has {bytes} bytes, and this storage takes {most}: split it into several documents"
    )]
    Body {
        /// The document.
        id: DocumentId,
        /// The size of its body.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// Too many writes in one batch.
    #[error("{writes} writes are too many for one batch of this storage, which takes {most}")]
    Batch {
        /// Its size.
        writes: usize,
        /// The limit.
        most: usize,
    },
    /// Too many bytes in one batch.
    #[error("a batch of {bytes} bytes is too large for this storage, which takes {most}")]
    BatchBytes {
        /// Its size.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// Two writes of one document.
    #[error("document {0} is written twice in one batch")]
    Twice(DocumentId),
}

impl DocumentLimits {
    /// Fails if the batch is too large, or has two writes of one document.
    pub fn check(&self, batch: &[DocumentWrite]) -> Result<(), BeyondDocumentLimits> {
        if batch.len() > self.max_batch {
            return Err(BeyondDocumentLimits::Batch { writes: batch.len(), most: self.max_batch });
        }
        let mut seen = std::collections::HashSet::with_capacity(batch.len());
        for write in batch {
            self.check_id(write.id())?;
            if let DocumentWrite::Put { id, body, .. } = write
                && body.len() > self.max_body_bytes
            {
                let (bytes, most) = (body.len(), self.max_body_bytes);
                return Err(BeyondDocumentLimits::Body { id: id.clone(), bytes, most });
            }
            if !seen.insert(write.id()) {
                return Err(BeyondDocumentLimits::Twice(write.id().clone()));
            }
        }
        let bytes = batch.iter().map(DocumentWrite::bytes).sum();
        if bytes > self.max_batch_bytes {
            return Err(BeyondDocumentLimits::BatchBytes { bytes, most: self.max_batch_bytes });
        }
        Ok(())
    }

    /// Fails if the id is too long.
    pub fn check_id(&self, id: &DocumentId) -> Result<(), BeyondDocumentLimits> {
        let (bytes, most) = (id.as_bytes().len(), self.max_id_bytes);
        if bytes > most { Err(BeyondDocumentLimits::Id { bytes, most }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
