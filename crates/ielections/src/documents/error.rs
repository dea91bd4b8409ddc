//! Why a document was not written, or not read: each says what to do about it.

use super::{BeyondDocumentLimits, DocumentId, DocumentVersion};
use crate::{Epoch, Loss, ReadError};
use std::sync::Arc;

/// A write was not confirmed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DocumentWriteError {
    /// The storage showed that this leadership is over. **Stop, and never try again**: every later call fails
    /// like this. A write that was under way when that was found out may have been the last to land before
    /// the successor came.
    #[error("deposed{}", current.map(|epoch| format!(": epoch {epoch} leads")).unwrap_or_default())]
    Deposed {
        /// Under which epoch the slot is held now; `None` if nobody holds it.
        current: Option<Epoch>,
    },
    /// A condition did not hold; nothing of the batch was written. Read the document, and decide anew.
    #[error("document {id} is not as the write expects it{}", found.map_or_else(|| ": there is none".to_owned(), |found| format!(": batch {found} wrote it")))]
    Conflict {
        /// The first document whose condition did not hold.
        id: DocumentId,
        /// The version that stands; `None` without a document.
        found: Option<DocumentVersion>,
    },
    /// More than the storage takes; nothing was asked of it. Write less at a time.
    #[error(transparent)]
    TooLarge(#[from] BeyondDocumentLimits),
    /// The leadership is over, or no time is left of it. Stop. A batch that was under way may have been
    /// written.
    #[error("the leadership is over: {0}")]
    Lost(Loss),
    /// Certainly not written, although it was tried for a while. Try again.
    #[error("not written: {cause}")]
    NotWritten {
        /// What the storage said last.
        cause: Arc<str>,
    },
    /// Written or not, or written yet: no attempt to find out was answered. Whatever is written next through
    /// any handle of this leadership first settles it; reading the document after that tells what came of it.
    #[error("unknown whether written: {cause}")]
    Unknown {
        /// What the storage said last.
        cause: Arc<str>,
    },
    /// Certainly not written, and trying again is pointless until somebody mends the cause: credentials,
    /// schema.
    #[error("the storage refused for good: {cause}")]
    Refused {
        /// What the storage said.
        cause: Arc<str>,
    },
}

/// A read was not answered.
#[derive(Debug, thiserror::Error)]
pub enum DocumentReadError {
    /// The storage showed that this leadership is over. Stop.
    #[error("deposed{}", current.map(|epoch| format!(": epoch {epoch} leads")).unwrap_or_default())]
    Deposed {
        /// Under which epoch the slot is held now; `None` if nobody holds it.
        current: Option<Epoch>,
    },
    /// The leadership is over, or no time is left of it. Stop.
    #[error("the leadership is over: {0}")]
    Lost(Loss),
    /// No document can have so long an id.
    #[error(transparent)]
    TooLarge(#[from] BeyondDocumentLimits),
    /// The storage failed; the error says whether to try again.
    #[error(transparent)]
    Storage(ReadError),
}

/// Why nothing goes through a writer any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Over {
    Deposed { current: Option<Epoch> },
    Lost(Loss),
}

impl From<Over> for DocumentWriteError {
    fn from(over: Over) -> Self {
        match over {
            Over::Deposed { current } => Self::Deposed { current },
            Over::Lost(loss) => Self::Lost(loss),
        }
    }
}

impl From<Over> for DocumentReadError {
    fn from(over: Over) -> Self {
        match over {
            Over::Deposed { current } => Self::Deposed { current },
            Over::Lost(loss) => Self::Lost(loss),
        }
    }
}
