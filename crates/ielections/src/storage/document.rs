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

    /// A version that was read from a storage.
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
