//! [`Term`]: one leadership. All reads and writes of documents go through it.

use ielections::{
    Document, DocumentId, DocumentReadError, DocumentVersion, DocumentWrite, DocumentWriteError, Documents,
    Epoch, Page, Scan, Standing,
};
use std::sync::OnceLock;
use tokio_util::sync::CancellationToken;

/// The storage refused this leader's fence, which ended the term: another process leads, or may.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("deposed{}", current.map(|epoch| format!(": epoch {epoch} leads")).unwrap_or_default())]
pub struct Deposed {
    /// The epoch of the record in the slot; `None` if the slot is vacant.
    pub current: Option<Epoch>,
}

#[derive(Debug)]
pub(crate) struct Term {
    pub(crate) standing: Standing,
    pub(crate) documents: Documents,
    /// Cancelled when the term ends. Each service has a child of it.
    pub(crate) stop: CancellationToken,
    deposed: OnceLock<Deposed>,
}

impl Term {
    pub(crate) fn new(standing: Standing, documents: Documents) -> Self {
        Self { standing, documents, stop: CancellationToken::new(), deposed: OnceLock::new() }
    }

    /// Writes one document. After the first refusal of the fence, no write is sent any more (I2).
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
        self.checked(self.documents.get(id).await)
    }

    pub(crate) async fn scan(&self, scan: &Scan) -> Result<Page, DocumentReadError> {
        self.checked(self.documents.scan(scan).await)
    }

    pub(crate) fn deposed(&self) -> Option<&Deposed> {
        self.deposed.get()
    }

    /// Ends the term if the fence was refused.
    fn checked<T>(&self, read: Result<T, DocumentReadError>) -> Result<T, DocumentReadError> {
        if let Err(DocumentReadError::Deposed { current }) = read {
            self.depose(current);
        }
        read
    }

    fn depose(&self, current: Option<Epoch>) {
        let deposed = Deposed { current };
        if self.deposed.set(deposed.clone()).is_ok() {
            tracing::error!(epoch = %self.standing.epoch(), %deposed, "the term ends");
            self.stop.cancel();
        }
    }
}
