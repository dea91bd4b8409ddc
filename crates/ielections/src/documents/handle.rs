//! [`Documents`]: through which the work of a leadership reads and writes documents.

use super::{
    access::DocumentAccess,
    error::{DocumentReadError, DocumentWriteError},
    partition::Partition,
    writer::DocumentWriter,
};
use crate::{Document, DocumentId, DocumentLimits, DocumentVersion, DocumentWrite, Epoch, Page, Scan};
use std::{fmt, sync::Arc};

/// The documents of one slot, for the time of one leadership. Cheap to clone. All clones share one queue:
/// their writes are applied in the order in which they were called.
///
/// Every write is fenced (I2): it is applied only if this leadership still holds the slot in the storage,
/// however long this process was paused. A deposed leader can do no harm with it.
///
/// Writes that wait at the same time share a batch of the storage. A batch is applied as a whole or not at
/// all.
#[derive(Clone)]
pub struct Documents {
    access: Arc<DocumentAccess<dyn Partition>>,
    writer: Arc<DocumentWriter>,
}

impl Documents {
    pub(crate) fn open(access: &Arc<DocumentAccess<dyn Partition>>) -> Option<Self> {
        let writer = Arc::clone(access.open_writer()?);
        Some(Self { access: Arc::clone(access), writer })
    }

    /// The epoch that fences every write.
    pub fn epoch(&self) -> Epoch {
        self.access.state().epoch
    }

    /// The limits of the storage.
    pub fn limits(&self) -> DocumentLimits {
        self.writer.limits
    }

    /// Writes a batch in one step, as a whole or not at all, and once. Returns the version of every document
    /// that it put. An empty batch checks whether the leadership still stands in the storage.
    ///
    /// Goes on while the elections close ([`Loss::Closing`](crate::Loss)), until the leadership is handed
    /// back: a service that stops can still write how far it came.
    ///
    /// # Errors
    /// [`DocumentWriteError`]. It states for each case whether the batch may have been applied.
    ///
    /// # Cancel safety
    /// Dropping the future is the same as [`DocumentWriteError::Unknown`]: the batch is applied or it is not,
    /// and the next write through any clone comes after it. Poll the future or drop it: one caller drives the
    /// batches of all, so a future that is kept and not polled may block every other write.
    pub async fn write(&self, batch: Vec<DocumentWrite>) -> Result<DocumentVersion, DocumentWriteError> {
        self.writer.write(self.access.slot(), batch).await
    }

    /// Reads one document. Shows every write that has returned.
    ///
    /// # Errors
    /// [`DocumentReadError`].
    ///
    /// # Cancel safety
    /// The future may be dropped.
    pub async fn get(&self, id: &DocumentId) -> Result<Option<Document>, DocumentReadError> {
        self.limits().check_id(id)?;
        let slot = self.access.slot();
        self.writer.read(slot, slot.partition.document(id)).await
    }

    /// Reads one page of documents, in the order of their ids. Shows every write of earlier leaderships, and
    /// every write of this one that has returned. Continue with [`Scan::after`] at [`Page::next`] until that
    /// is `None`.
    ///
    /// # Errors
    /// [`DocumentReadError`].
    ///
    /// # Cancel safety
    /// The future may be dropped.
    pub async fn scan(&self, scan: &Scan) -> Result<Page, DocumentReadError> {
        let slot = self.access.slot();
        self.writer.read(slot, slot.partition.scan(scan)).await
    }
}

impl fmt::Debug for Documents {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Documents").field(self.access.state()).finish()
    }
}
