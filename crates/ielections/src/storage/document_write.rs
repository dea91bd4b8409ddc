//! [`DocumentWrite`]: one write of a batch, with its condition.

use super::document::{DocumentId, DocumentVersion};
use bytes::Bytes;

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
