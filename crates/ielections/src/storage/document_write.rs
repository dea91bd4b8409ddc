//! One write of a batch, and what it depends on beside the fence.

use super::document::{DocumentId, DocumentVersion};
use bytes::Bytes;

/// One write of a batch. A batch has at most one for each document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DocumentWrite {
    /// Puts the document there, replacing what stands.
    Put {
        /// Which document.
        id: DocumentId,
        /// What it shall say.
        body: Bytes,
        /// On what condition.
        only_if: OnlyIf,
    },
    /// Removes the document. Removing what is not there is no error, unless the condition says so.
    Delete {
        /// Which document.
        id: DocumentId,
        /// On what condition.
        only_if: OnlyIf,
    },
}

/// The condition of one write. Where it does not hold, nothing of the batch is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnlyIf {
    /// None. The fence is compared all the same.
    Always,
    /// No such document stands.
    Absent,
    /// The document stands, with exactly this version.
    Version(DocumentVersion),
}

impl DocumentWrite {
    /// Which document it is about.
    pub fn id(&self) -> &DocumentId {
        match self {
            Self::Put { id, .. } | Self::Delete { id, .. } => id,
        }
    }

    /// On what condition.
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
    /// Whether it holds for a document that stands with `version`, or does not stand.
    pub fn holds(self, version: Option<DocumentVersion>) -> bool {
        match self {
            Self::Always => true,
            Self::Absent => version.is_none(),
            Self::Version(expected) => version == Some(expected),
        }
    }
}
