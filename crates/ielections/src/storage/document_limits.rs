//! [`DocumentLimits`]: stated by the driver, checked by the layer above.

use super::{document::DocumentId, document_write::DocumentWrite};

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
