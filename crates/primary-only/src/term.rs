//! [`Term`]: a leadership under which services run. [`TermGate`]: they run under one at a time, and under none twice.

use ielections::{
    Document, DocumentId, DocumentReadError, DocumentVersion, DocumentWrite, DocumentWriteError, Documents,
    Epoch, Incarnation, Page, Scan, Standing,
};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tokio_util::sync::CancellationToken;

/// The storage refused this leader's fence, which ended the term: another process leads, or may.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("deposed{}", current.map(|epoch| format!(": epoch {epoch} leads")).unwrap_or_default())]
pub struct LeaderReplaced {
    /// The epoch of the record in the slot; `None` if the slot is vacant.
    pub current: Option<Epoch>,
}

#[derive(Debug)]
pub(crate) struct Term {
    pub(crate) standing: Standing,
    pub(crate) documents: Documents,
    /// Cancelled when the term ends. Each service has a child of it.
    pub(crate) stop: CancellationToken,
    deposed: OnceLock<LeaderReplaced>,
}

impl Term {
    pub(crate) fn new(standing: Standing, documents: Documents) -> Self {
        Self { standing, documents, stop: CancellationToken::new(), deposed: OnceLock::new() }
    }

    /// Writes one document. After the first refusal of the fence, no write is sent any more (I2).
    pub(crate) async fn write(&self, write: DocumentWrite) -> Result<DocumentVersion, DocumentWriteError> {
        if let Some(LeaderReplaced { current }) = self.deposed() {
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

    pub(crate) fn deposed(&self) -> Option<&LeaderReplaced> {
        self.deposed.get()
    }

    fn checked<T>(&self, read: Result<T, DocumentReadError>) -> Result<T, DocumentReadError> {
        if let Err(DocumentReadError::Deposed { current }) = read {
            self.depose(current);
        }
        read
    }

    fn depose(&self, current: Option<Epoch>) {
        let deposed = LeaderReplaced { current };
        if self.deposed.set(deposed.clone()).is_ok() {
            tracing::error!(epoch = %self.standing.epoch(), %deposed, "the term ends");
            self.stop.cancel();
        }
    }
}

/// A term did not begin, or ended by itself. None of its instances runs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeadError {
    /// Another process leads, or may. Shut down, and campaign again.
    #[error(transparent)]
    Deposed(#[from] LeaderReplaced),
    /// The storage of this election has no fenced documents, or the elections have ended.
    #[error("the storage of this election has no fenced documents: choose another driver")]
    NoDocuments,
    /// The services run under another leadership. A process that leads several slots at once needs a registry for each.
    #[error("the services run under another leadership already")]
    Leading,
    /// The services ran under this leadership before.
    #[error("the services ran under this leadership before")]
    SameTerm,
}

/// Lets the services run under one leadership at a time, and under none twice.
#[derive(Debug, Default)]
pub(crate) struct TermGate(Mutex<TermState>);

#[derive(Debug, Default)]
struct TermState {
    leading: bool,
    last: Option<Incarnation>,
}

pub(crate) struct TermGuard<'turns>(&'turns TermGate);

impl TermGate {
    pub(crate) fn take(&self, standing: &Standing) -> Result<TermGuard<'_>, LeadError> {
        let mut state = self.state();
        if state.leading {
            return Err(LeadError::Leading);
        }
        let incarnation = standing.incarnation();
        if state.last == Some(incarnation) {
            return Err(LeadError::SameTerm);
        }
        *state = TermState { leading: true, last: Some(incarnation) };
        Ok(TermGuard(self))
    }

    fn state(&self) -> MutexGuard<'_, TermState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TermGuard<'_> {
    fn drop(&mut self) {
        self.0.state().leading = false;
    }
}
