//! [`Document`], its id and its version.

use bytes::Bytes;
use std::{borrow::Borrow, fmt};

/// Identifies a document within its slot: any bytes, at least one. Scans return documents in the byte order
/// of their ids.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentId(Bytes);

/// The id is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a document's id may not be empty")]
pub struct NotAnId;

impl DocumentId {
    /// # Errors
    /// If there are no bytes.
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

/// The batch that wrote a document: its number among all batches of the partition. Numbers rise over
/// leaderships and restarts and never repeat, so a document that was deleted and put again has another
/// version.
///
/// At most `i64::MAX`, as an [`Epoch`](crate::Epoch) is, and for the same reason.
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
    /// Checks a batch.
    ///
    /// # Errors
    /// If the batch is too large, or has two writes of one document.
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

    /// Checks an id.
    ///
    /// # Errors
    /// If the id is too long.
    pub fn check_id(&self, id: &DocumentId) -> Result<(), BeyondDocumentLimits> {
        let (bytes, most) = (id.as_bytes().len(), self.max_id_bytes);
        if bytes > most { Err(BeyondDocumentLimits::Id { bytes, most }) } else { Ok(()) }
    }
}
