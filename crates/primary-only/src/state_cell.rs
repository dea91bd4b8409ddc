//! [`StateCell`]: the only writer of an instance's document. [`RunContext`]: the arguments of a run, with the cell.

use crate::{LeaderReplaced, SchemaVersion, document::seal, term::Term};
use futures_util::future::BoxFuture;
use ielections::{
    BeyondDocumentLimits, DocumentId, DocumentReadError, DocumentVersion, DocumentWrite, DocumentWriteError,
    Loss, OnlyIf, Standing,
};
use serde::Serialize;
use std::{fmt, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use vvm_clock::Clock;

/// The state of an instance, and its document.
///
/// Every write is fenced by the leadership (I2), and is applied only to the version that this cell read or wrote last.
/// A write is repeated until its result is known or the term ends. An error says so if the result is unknown.
///
/// # Cancel safety
/// Dropping the future of a write does not undo it. The cell finishes the write before the next one, and this crate
/// before the instance ends. Until then [`doc`](Self::doc) shows the state before it: call [`insert`](Self::insert), which
/// finishes it. Poll the future or drop it: holding it without polling may block the writes of all other instances.
pub struct StateCell<Doc> {
    doc: Doc,
    stored: StoredVersion,
    write: Option<PendingWrite<Doc>>,
    context: CellContext,
}

#[derive(Clone)]
pub(crate) struct CellContext {
    pub(crate) term: Arc<Term>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) document: DocumentId,
    pub(crate) schema: SchemaVersion,
    pub(crate) owner: Arc<dyn CellOwner>,
}

pub(crate) trait CellOwner: Send + Sync {
    fn persisted(&self);
    fn deleted(&self);
    /// The cell was dropped during a write; the future finishes it.
    fn dropped_during(&self, write: BoxFuture<'static, ()>);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StoredVersion {
    Absent,
    At(DocumentVersion),
    Deleted,
}

struct PendingWrite<Doc> {
    effect: Effect<Doc>,
    write: DocumentWrite,
    /// An earlier call was dropped after it had sent the write, which may have been applied.
    in_doubt: bool,
}

enum Effect<Doc> {
    Inserted,
    Updated(Doc),
    Deleted,
}

/// Why a write of a document failed. It was not applied, unless the variant says that it may have been.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another process leads, or may. The term ends by itself: end the run, too. The write may have been applied.
    #[error(transparent)]
    Deposed(LeaderReplaced),
    /// The leadership is over. End the run. The write may have been applied.
    #[error("the leadership is over: {0}")]
    Lost(Loss),
    /// Another writer changed the document. End the run; the next term begins with the stored state.
    #[error(
        "another writer changed the document{}",
        found.map_or_else(|| ": it is gone".to_owned(), |found| format!(": batch {found} wrote it"))
    )]
    Conflict {
        /// The stored version; `None` if there is no document.
        found: Option<DocumentVersion>,
    },
    /// The document was not inserted yet.
    #[error("the instance has no document: insert it first")]
    NotInserted,
    /// This run has deleted the document. The service no longer lists the instance, so it writes no other one.
    #[error("the instance has deleted its document")]
    Deleted,
    /// The document exceeds the storage's limits.
    #[error(transparent)]
    TooLarge(BeyondDocumentLimits),
    /// The state can't be written as JSON.
    #[error("the state can't be written as JSON: {0}")]
    Encode(#[source] serde_json::Error),
    /// The term ended before the storage accepted the write. End the run. The write may have been applied.
    #[error("the term ended before the document was written: {cause}")]
    OutOfTime {
        /// The storage's last error.
        cause: Arc<str>,
    },
    /// The storage refused the write. Repeating it fails until an operator removes the cause. An earlier attempt of this write,
    /// whose answer was lost, may have been applied.
    #[error("the storage refused the document: {cause}")]
    Refused {
        /// The storage's error.
        cause: Arc<str>,
    },
}

impl<Doc: Serialize + Send + Sync + 'static> StateCell<Doc> {
    /// Returns the state: of the document, or of the one that [`insert`](Self::insert) will write.
    pub fn doc(&self) -> &Doc {
        &self.doc
    }

    /// Returns whether the document exists, as far as this cell knows.
    pub fn is_persisted(&self) -> bool {
        matches!(self.stored, StoredVersion::At(_))
    }

    /// Writes the instance's first document, from [`doc`](Self::doc). Returns at once if a document exists,
    /// so that every run can begin with this call.
    pub async fn insert(&mut self) -> Result<(), StateError> {
        self.settle().await?;
        match self.stored {
            StoredVersion::Absent => {}
            StoredVersion::At(_) => return Ok(()),
            StoredVersion::Deleted => return Err(StateError::Deleted),
        }
        let body = seal(self.context.schema, &self.doc).map_err(StateError::Encode)?;
        let id = self.context.document.clone();
        self.write(DocumentWrite::Put { id, body, only_if: OnlyIf::Absent }, Effect::Inserted).await
    }

    /// Replaces the document's state. After an error, [`doc`](Self::doc) is unchanged.
    pub async fn update(&mut self, doc: Doc) -> Result<(), StateError> {
        self.settle().await?;
        let only_if = self.if_unchanged()?;
        let body = seal(self.context.schema, &doc).map_err(StateError::Encode)?;
        let id = self.context.document.clone();
        self.write(DocumentWrite::Put { id, body, only_if }, Effect::Updated(doc)).await
    }

    /// Deletes the document, so that no later term runs the instance. The service no longer lists it. The run
    /// continues. Another instance of this id runs only after this run has ended.
    pub async fn delete(&mut self) -> Result<(), StateError> {
        self.settle().await?;
        let only_if = self.if_unchanged()?;
        let id = self.context.document.clone();
        self.write(DocumentWrite::Delete { id, only_if }, Effect::Deleted).await
    }
}

impl<Doc> StateCell<Doc> {
    pub(crate) fn new(doc: Doc, stored: StoredVersion, context: CellContext) -> Self {
        Self { doc, stored, write: None, context }
    }

    fn if_unchanged(&self) -> Result<OnlyIf, StateError> {
        match self.stored {
            StoredVersion::Absent => Err(StateError::NotInserted),
            StoredVersion::At(version) => Ok(OnlyIf::Version(version)),
            StoredVersion::Deleted => Err(StateError::Deleted),
        }
    }

    async fn write(&mut self, write: DocumentWrite, effect: Effect<Doc>) -> Result<(), StateError> {
        self.write = Some(PendingWrite { effect, write, in_doubt: false });
        self.settle().await
    }

    async fn settle(&mut self) -> Result<(), StateError> {
        let Some(PendingWrite { write, in_doubt, .. }) = &mut self.write else { return Ok(()) };
        let in_doubt = std::mem::replace(in_doubt, true);
        let outcome = self.context.finish(write.clone(), in_doubt).await;
        let Some(PendingWrite { effect, .. }) = self.write.take() else { return Ok(()) };
        self.stored = match (effect, outcome?) {
            (Effect::Deleted, _) => StoredVersion::Deleted,
            (Effect::Inserted, version) => StoredVersion::At(version),
            (Effect::Updated(doc), version) => {
                self.doc = doc;
                StoredVersion::At(version)
            }
        };
        Ok(())
    }
}

impl CellContext {
    async fn finish(
        &self,
        write: DocumentWrite,
        in_doubt: bool,
    ) -> Result<DocumentVersion, DocumentWriteError> {
        let deletes = matches!(write, DocumentWrite::Delete { .. });
        let version = write_until_known(&self.term, &*self.clock, write, in_doubt).await?;
        if deletes {
            self.owner.deleted()
        } else {
            self.owner.persisted()
        }
        Ok(version)
    }
}

/// The pause between two attempts. The storage limits each attempt itself.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Writes until the result is known (I7), at the latest until the term ends (I10), and returns the version of the
/// document. `may_be_applied` says that an earlier attempt was dropped.
async fn write_until_known(
    term: &Term,
    clock: &dyn Clock,
    write: DocumentWrite,
    mut may_be_applied: bool,
) -> Result<DocumentVersion, DocumentWriteError> {
    loop {
        let error = match term.write(write.clone()).await {
            // The instance is the document's only writer, so the conflict may be with its own earlier attempt.
            Err(DocumentWriteError::Conflict { id, found }) if may_be_applied => {
                match read_back(term, &write).await {
                    Ok(Some(version)) => return Ok(version),
                    Ok(None) => return Err(DocumentWriteError::Conflict { id, found }),
                    Err(error) => from_read_back(error),
                }
            }
            Err(error) => error,
            Ok(version) => return Ok(version),
        };
        match &error {
            DocumentWriteError::NotWritten { .. } => {}
            DocumentWriteError::Unknown { .. } => may_be_applied = true,
            _ => return Err(error),
        }
        tracing::warn!(document = %write.id(), %error, "a document was not written; trying again");
        if term.stop.run_until_cancelled(clock.sleep(RETRY_PAUSE)).await.is_none() {
            return Err(error);
        }
    }
}

async fn read_back(term: &Term, write: &DocumentWrite) -> Result<Option<DocumentVersion>, DocumentReadError> {
    let document = term.get(write.id()).await?;
    Ok(match (write, document) {
        (DocumentWrite::Put { body, .. }, Some(document)) if document.body == *body => Some(document.version),
        // A deleted document has no version, and no caller reads it.
        (DocumentWrite::Delete { .. }, None) => Some(DocumentVersion::NONE),
        _ => None,
    })
}

fn from_read_back(error: DocumentReadError) -> DocumentWriteError {
    match error {
        DocumentReadError::Deposed { current } => DocumentWriteError::Deposed { current },
        DocumentReadError::Lost(loss) => DocumentWriteError::Lost(loss),
        DocumentReadError::TooLarge(beyond) => DocumentWriteError::TooLarge(beyond),
        DocumentReadError::Storage(error) => DocumentWriteError::Unknown { cause: error.to_string().into() },
    }
}

impl<Doc> Drop for StateCell<Doc> {
    fn drop(&mut self) {
        if let Some(PendingWrite { write, in_doubt, .. }) = self.write.take() {
            let context = self.context.clone();
            // `finish` notifies the owner. No later write needs the version.
            let finish = async move { drop(context.finish(write, in_doubt).await) };
            self.context.owner.dropped_during(Box::pin(finish));
        }
    }
}

impl From<DocumentWriteError> for StateError {
    fn from(error: DocumentWriteError) -> Self {
        match error {
            DocumentWriteError::Deposed { current } => Self::Deposed(LeaderReplaced { current }),
            DocumentWriteError::Lost(loss) => Self::Lost(loss),
            DocumentWriteError::Conflict { found, .. } => Self::Conflict { found },
            DocumentWriteError::TooLarge(beyond) => Self::TooLarge(beyond),
            DocumentWriteError::NotWritten { cause } | DocumentWriteError::Unknown { cause } => {
                Self::OutOfTime { cause }
            }
            DocumentWriteError::Refused { cause } => Self::Refused { cause },
        }
    }
}

impl<Doc: fmt::Debug> fmt::Debug for StateCell<Doc> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("StateCell")
            .field("doc", &self.doc)
            .field("stored", &self.stored)
            .finish_non_exhaustive()
    }
}

/// The arguments of [`Task::run`](crate::Task::run).
#[derive(Debug)]
#[non_exhaustive]
pub struct RunContext<Doc> {
    /// The instance's state, and the only way to write it.
    pub state: StateCell<Doc>,
    /// Cancelled when the term ends.
    ///
    /// The leadership is released only after all runs have ended. Until then a run may still write its
    /// document, so that the next leader repeats less work. To stop waiting:
    /// `cx.stop.run_until_cancelled(work).await.ok_or(TermInterrupted)?`
    pub stop: CancellationToken,
    /// The leadership. Its epoch fences writes to other systems; [`ensure`](Standing::ensure) checks the time left.
    pub standing: Standing,
}

impl<Doc> RunContext<Doc> {
    pub(crate) fn new(state: StateCell<Doc>, stop: CancellationToken, standing: Standing) -> Self {
        Self { state, stop, standing }
    }
}

/// The error of a run that ends early because its term ends. `Ok` would mean that the task is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("interrupted: the term ends")]
pub struct TermInterrupted;
