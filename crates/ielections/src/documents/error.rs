//! How a read or write of documents fails, and what to do about it.

use crate::{BeyondDocumentLimits, DocumentId, DocumentVersion, Epoch, ReadError, loss::Loss};
use std::sync::Arc;

/// A write was not confirmed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DocumentWriteError {
    /// The storage showed that this leadership is over. **Stop, and don't retry**: every later call fails the
    /// same way. A write that was in flight may have been applied before the successor's claim.
    #[error("deposed{}", current.map(|epoch| format!(": epoch {epoch} leads")).unwrap_or_default())]
    Deposed {
        /// The epoch that holds the slot now; `None` if the slot is vacant.
        current: Option<Epoch>,
    },
    /// A condition did not hold, so the batch was not applied. Read the document and decide anew.
    #[error(
        "document {id} does not meet the condition of the write: {}",
        found.map_or_else(|| "it does not exist".to_owned(), |found| format!("batch {found} wrote it"))
    )]
    Conflict {
        /// The first document that failed its condition.
        id: DocumentId,
        /// Its version; `None` if there is no such document.
        found: Option<DocumentVersion>,
    },
    /// The batch is larger than the storage accepts, and was not sent. Write less at a time.
    #[error(transparent)]
    TooLarge(#[from] BeyondDocumentLimits),
    /// The leadership is over, or no time is left of it. Stop. A batch that was in flight may have been
    /// applied.
    #[error("the leadership is over: {0}")]
    Lost(Loss),
    /// Not written, after several attempts. Try again.
    #[error("not written: {cause}")]
    NotWritten {
        /// The last failure.
        cause: Arc<str>,
    },
    /// May have been applied, or may still be: no attempt to find out was answered. The next write through
    /// any handle of this leadership settles it first. Reading the document after that shows the outcome.
    #[error("unknown whether written: {cause}")]
    Unknown {
        /// The last failure.
        cause: Arc<str>,
    },
    /// Not written. Retrying is pointless until the operator corrects the cause, such as credentials or
    /// schema.
    #[error("the storage refused for good: {cause}")]
    Refused {
        /// The storage's reason.
        cause: Arc<str>,
    },
}

/// A read failed.
#[derive(Debug, thiserror::Error)]
pub enum DocumentReadError {
    /// The storage showed that this leadership is over. Stop.
    #[error("deposed{}", current.map(|epoch| format!(": epoch {epoch} leads")).unwrap_or_default())]
    Deposed {
        /// The epoch that holds the slot now; `None` if the slot is vacant.
        current: Option<Epoch>,
    },
    /// The leadership is over, or no time is left of it. Stop.
    #[error("the leadership is over: {0}")]
    Lost(Loss),
    /// The id is longer than the storage accepts.
    #[error(transparent)]
    TooLarge(#[from] BeyondDocumentLimits),
    /// The storage failed; the error states whether to retry.
    #[error(transparent)]
    Storage(ReadError),
}

/// Why a writer has ended.
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
