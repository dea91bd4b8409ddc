//! A document, its name and its version.

use bytes::Bytes;
use std::{borrow::Borrow, fmt};

/// The name of a document within its slot: any bytes, at least one. Ordered as bytes are, and scans follow
/// that order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentId(Bytes);

/// No bytes are no name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a document's id may not be empty")]
pub struct NotAnId;

impl DocumentId {
    /// # Errors
    /// When there are no bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, NotAnId> {
        let bytes = bytes.into();
        if bytes.is_empty() { Err(NotAnId) } else { Ok(Self(bytes)) }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same id in memory of its own: it may be part of a larger buffer, which it would keep.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }
}

/// A storage finds a document by its bytes alone.
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

/// Which batch wrote a document: the number of that batch among all that its partition ever took. It only
/// rises, over leaderships and restarts, and two batches never have the same one; so a document that was
/// deleted and put again is told from the one before.
///
/// At most `i64::MAX`, as an [`Epoch`](crate::Epoch) is, and for the same reason.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DocumentVersion(u64);

impl DocumentVersion {
    /// What a partition starts from: no batch was ever written.
    pub const NONE: Self = Self(0);

    /// The version that a storage has kept.
    pub const fn from_stored(number: u64) -> Self {
        Self(number)
    }

    /// The version of the next batch.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
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

/// A document as it stands in the storage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Document {
    /// Its name.
    pub id: DocumentId,
    /// Which batch wrote it.
    pub version: DocumentVersion,
    /// What it says. May be empty.
    pub body: Bytes,
}
