//! [`Documents`]: what a service writes and reads its documents with.

use super::{
    Document, DocumentId, DocumentLimits, DocumentReadError, DocumentVersion, DocumentWrite,
    DocumentWriteError, Page, Scan, writer::DocumentWriter,
};
use crate::{Epoch, Standing};
use std::{fmt, sync::Arc};

/// The documents of one slot, for as long as one leadership of it lasts. Cheap to clone; all clones share one
/// line, so that what any of them writes lands in the order in which it was asked for.
///
/// Every write is fenced (I2): it lands exactly if the slot is still held by this leadership, whatever this
/// process believes, however long it was paused. A deposed leader can do no harm with it.
///
/// Writes that wait at the same time share a batch of the storage, each whole or not at all.
#[derive(Clone)]
pub struct Documents {
    standing: Standing,
    writer: Arc<DocumentWriter>,
}

impl Standing {
    /// The documents of the slot that is led; `None` where the storage keeps none, or the elections have
    /// ended.
    pub fn documents(&self) -> Option<Documents> {
        let writer = match self.writer() {
            Some(writer) => writer,
            None => {
                let limits = self.partition().limits()?;
                self.open_writer(|| DocumentWriter::of(self, limits))
            }
        };
        Some(Documents { standing: self.clone(), writer: Arc::clone(writer) })
    }
}

impl Documents {
    /// The epoch that every write is fenced with.
    pub fn epoch(&self) -> Epoch {
        self.standing.epoch()
    }

    /// What the storage can carry.
    pub fn limits(&self) -> DocumentLimits {
        self.writer.limits
    }

    /// Writes a batch: all of it or nothing, in one step, once. Returns the version of every document that it
    /// put. An empty batch asks whether the leadership still stands in the storage.
    ///
    /// Goes on while the elections close ([`Loss::Closing`](crate::Loss)), until the leadership is handed
    /// back: a service that is told to stop can still write where it stopped.
    ///
    /// # Errors
    /// [`DocumentWriteError`], which says for each case whether the batch may have been written.
    ///
    /// # Cancel safety
    /// Dropping the future is the same as [`DocumentWriteError::Unknown`]: the batch is written, or it is
    /// not, and whatever is written next through any clone comes after it. Drive it or drop it: one that is
    /// kept and not polled may hold up every other write, since whoever writes drives the batch for those who
    /// wait.
    pub async fn write(&self, batch: Vec<DocumentWrite>) -> Result<DocumentVersion, DocumentWriteError> {
        self.writer.write(&self.standing, batch).await
    }

    /// One document, as it stands now; it shows every write that has returned.
    ///
    /// # Errors
    /// [`DocumentReadError`].
    ///
    /// # Cancel safety
    /// May be dropped at will.
    pub async fn get(&self, id: &DocumentId) -> Result<Option<Document>, DocumentReadError> {
        self.limits().check_id(id)?;
        self.writer.read(&self.standing, self.standing.partition().document(id)).await
    }

    /// One page of documents, in the order of their ids. It shows every write of earlier leaderships, and
    /// every write of this one that returned before. Go on with [`Scan::after`] at [`Page::next`] until that
    /// is `None`.
    ///
    /// # Errors
    /// [`DocumentReadError`].
    ///
    /// # Cancel safety
    /// May be dropped at will.
    pub async fn scan(&self, scan: &Scan) -> Result<Page, DocumentReadError> {
        self.writer.read(&self.standing, self.standing.partition().scan(scan)).await
    }
}

impl fmt::Debug for Documents {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Documents").field(&self.standing).finish()
    }
}
