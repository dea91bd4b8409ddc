//! [`Term`]: one leadership, as everything in this crate sees it. All reads and writes of documents pass
//! here.

use ielections::{
    Document, DocumentId, DocumentReadError, DocumentVersion, DocumentWrite, DocumentWriteError, Documents,
    Epoch, Page, Scan, Standing,
};
use std::sync::OnceLock;
use tokio_util::sync::CancellationToken;

/// Somebody else leads, or may. The storage said so, which ended the term.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("deposed{}", current.map(|epoch| format!(": {epoch:?} leads")).unwrap_or_default())]
pub struct Deposed {
    /// Under which epoch the slot is held now; `None` if nobody holds it.
    pub current: Option<Epoch>,
}

#[derive(Debug)]
pub(crate) struct Term {
    pub(crate) standing: Standing,
    pub(crate) documents: Documents,
    /// Cancelled when the term ends; each service has a child of it.
    pub(crate) stop: CancellationToken,
    deposed: OnceLock<Deposed>,
}

impl Term {
    pub(crate) fn new(standing: Standing, documents: Documents) -> Self {
        Self { standing, documents, stop: CancellationToken::new(), deposed: OnceLock::new() }
    }

    /// Writes one document. Once deposed, always deposed: the term ends, and nothing is ever tried again
    /// (I2).
    pub(crate) async fn write(&self, write: DocumentWrite) -> Result<DocumentVersion, DocumentWriteError> {
        if let Some(Deposed { current }) = self.deposed() {
            return Err(DocumentWriteError::Deposed { current: *current });
        }
        let written = self.documents.write(vec![write]).await;
        if let Err(DocumentWriteError::Deposed { current }) = written {
            self.depose(current);
        }
        written
    }

    pub(crate) async fn get(&self, id: &DocumentId) -> Result<Option<Document>, DocumentReadError> {
        self.noticing(self.documents.get(id).await)
    }

    pub(crate) async fn scan(&self, scan: &Scan) -> Result<Page, DocumentReadError> {
        self.noticing(self.documents.scan(scan).await)
    }

    pub(crate) fn deposed(&self) -> Option<&Deposed> {
        self.deposed.get()
    }

    fn noticing<T>(&self, read: Result<T, DocumentReadError>) -> Result<T, DocumentReadError> {
        if let Err(DocumentReadError::Deposed { current }) = read {
            self.depose(current);
        }
        read
    }

    fn depose(&self, current: Option<Epoch>) {
        if self.deposed.set(Deposed { current }).is_ok() {
            tracing::error!(epoch = %self.standing.epoch(), ?current, "deposed: the term ends");
            self.stop.cancel();
        }
    }
}
