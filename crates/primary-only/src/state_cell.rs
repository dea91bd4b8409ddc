//! [`StateCell`]: the only writer of an instance's document.

use crate::{Deposed, SchemaVersion, envelope::seal, landing::land, term::Term};
use futures_util::future::BoxFuture;
use ielections::{
    BeyondDocumentLimits, DocumentId, DocumentVersion, DocumentWrite, DocumentWriteError, Loss, OnlyIf,
};
use serde::Serialize;
use std::{fmt, sync::Arc};
use vvm_clock::Clock;

/// The state of an instance, and its document: every write is fenced by the leadership (I2), and lands only
/// on the version that this cell wrote or read last.
///
/// A write is tried until it has landed, until it can't any more, or until the term ends: where a call
/// returns, it is known what stands, unless the error says otherwise.
///
/// # Cancel safety
/// Dropping the future of a write leaves it in doubt, not undone: the cell finishes it before the next one
/// begins, and the machinery does before the instance counts as ended. Drive it or drop it: while it is held
/// and not driven, it may keep the writes of all other instances waiting.
pub struct StateCell<Doc> {
    doc: Doc,
    stands: Stands,
    /// The write that is under way, or in doubt.
    write: Option<Write<Doc>>,
    place: Place,
}

/// Where a cell's document is, and who must hear of it.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) term: Arc<Term>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) document: DocumentId,
    pub(crate) schema: SchemaVersion,
    pub(crate) keeper: Arc<dyn Keeper>,
}

/// Who keeps the instance.
pub(crate) trait Keeper: Send + Sync {
    /// The document stands.
    fn persisted(&self);
    /// The document was deleted.
    fn released(&self);
    /// The cell is gone, and a write of it is in doubt: this finishes it.
    fn left_behind(&self, write: BoxFuture<'static, ()>);
}

/// What is known of the document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stands {
    Not,
    At(DocumentVersion),
}

struct Write<Doc> {
    then: Then<Doc>,
    write: DocumentWrite,
    /// It was asked for, and nobody has heard the answer.
    in_doubt: bool,
}

/// What holds once a write has landed.
enum Then<Doc> {
    Inserted,
    Says(Doc),
    Gone,
}

/// A document was not written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Somebody else leads, or may. The term ends by itself: end the run, too.
    #[error(transparent)]
    Deposed(Deposed),
    /// The leadership is over. End the run. The write may have landed.
    #[error("the leadership is over: {0}")]
    Lost(Loss),
    /// The document is not the one that this cell left: somebody writes it past its instance. End the run;
    /// the next term begins with what stands.
    #[error("the document is not the one that this instance left: {found:?}")]
    Conflict {
        /// The version that stands, if one does.
        found: Option<DocumentVersion>,
    },
    /// No such document stands: it was not inserted yet, or deleted already.
    #[error("the instance has no document: insert it first")]
    NotInserted,
    /// The storage can't carry it.
    #[error(transparent)]
    TooLarge(BeyondDocumentLimits),
    /// The state does not become JSON.
    #[error("the state does not become JSON: {0}")]
    Encode(#[source] serde_json::Error),
    /// The term ended while the storage did not take it. End the run. The write may have landed.
    #[error("the term ended before the document was written: {cause}")]
    OutOfTime {
        /// What the storage said last.
        cause: Arc<str>,
    },
    /// The storage refused, and trying again is pointless until somebody mends the cause.
    #[error("the storage refused for good: {cause}")]
    Refused {
        /// What the storage said.
        cause: Arc<str>,
    },
}

impl<Doc: Serialize + Send + Sync + 'static> StateCell<Doc> {
    /// What the document says; or what it will say, before it was inserted.
    pub fn doc(&self) -> &Doc {
        &self.doc
    }

    /// Whether the document stands, as far as this cell knows.
    pub fn is_persisted(&self) -> bool {
        self.stands != Stands::Not
    }

    /// Makes the instance last: puts its document there, as [`doc`](Self::doc) has it. At once where it
    /// stands already, so that a run may begin with it whether it is the first or a resumed one.
    ///
    /// # Errors
    /// [`StateError`].
    pub async fn insert(&mut self) -> Result<(), StateError> {
        self.settle().await?;
        if self.is_persisted() {
            return Ok(());
        }
        let body = seal(self.place.schema, &self.doc).map_err(StateError::Encode)?;
        let id = self.place.document.clone();
        self.begin(DocumentWrite::Put { id, body, only_if: OnlyIf::Absent }, Then::Inserted);
        self.settle().await
    }

    /// Takes a step: the document says `doc` from now on.
    ///
    /// # Errors
    /// [`StateError`]; [`doc`](Self::doc) is then still the one before.
    pub async fn update(&mut self, doc: Doc) -> Result<(), StateError> {
        self.settle().await?;
        let only_if = self.as_it_stands()?;
        let body = seal(self.place.schema, &doc).map_err(StateError::Encode)?;
        let id = self.place.document.clone();
        self.begin(DocumentWrite::Put { id, body, only_if }, Then::Says(doc));
        self.settle().await
    }

    /// Ends the instance for good: its document goes, and the service forgets it. The run goes on
    /// undisturbed, and another instance of this id does not run before this one has ended.
    ///
    /// # Errors
    /// [`StateError`].
    pub async fn delete(&mut self) -> Result<(), StateError> {
        self.settle().await?;
        let only_if = self.as_it_stands()?;
        let id = self.place.document.clone();
        self.begin(DocumentWrite::Delete { id, only_if }, Then::Gone);
        self.settle().await
    }
}

impl<Doc> StateCell<Doc> {
    pub(crate) fn new(doc: Doc, stands: Stands, place: Place) -> Self {
        Self { doc, stands, write: None, place }
    }

    fn as_it_stands(&self) -> Result<OnlyIf, StateError> {
        match self.stands {
            Stands::Not => Err(StateError::NotInserted),
            Stands::At(version) => Ok(OnlyIf::Version(version)),
        }
    }

    fn begin(&mut self, write: DocumentWrite, then: Then<Doc>) {
        self.write = Some(Write { then, write, in_doubt: false });
    }

    /// Finishes the write that is under way, if one is.
    async fn settle(&mut self) -> Result<(), StateError> {
        let Some(Write { write, in_doubt, .. }) = &mut self.write else { return Ok(()) };
        let in_doubt = std::mem::replace(in_doubt, true);
        let outcome = self.place.finish(write.clone(), in_doubt).await;
        let Some(Write { then, .. }) = self.write.take() else { return Ok(()) };
        let version = outcome?;
        self.stands = Stands::At(version);
        match then {
            Then::Inserted => {}
            Then::Says(doc) => self.doc = doc,
            Then::Gone => self.stands = Stands::Not,
        }
        Ok(())
    }
}

impl Place {
    /// Has a write land, and lets the keeper know.
    async fn finish(
        &self,
        write: DocumentWrite,
        in_doubt: bool,
    ) -> Result<DocumentVersion, DocumentWriteError> {
        let deletes = matches!(write, DocumentWrite::Delete { .. });
        let version = land(&self.term, &*self.clock, write, in_doubt).await?;
        if deletes {
            self.keeper.released()
        } else {
            self.keeper.persisted()
        }
        Ok(version)
    }
}

impl<Doc> Drop for StateCell<Doc> {
    fn drop(&mut self) {
        if let Some(Write { write, in_doubt, .. }) = self.write.take() {
            let place = self.place.clone();
            // Whom it may concern hears of it within; nobody is left to ask for the version.
            let finish = async move { drop(place.finish(write, in_doubt).await) };
            self.place.keeper.left_behind(Box::pin(finish));
        }
    }
}

impl From<DocumentWriteError> for StateError {
    fn from(error: DocumentWriteError) -> Self {
        match error {
            DocumentWriteError::Deposed { current } => Self::Deposed(Deposed { current }),
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
            .field("stands", &self.stands)
            .finish_non_exhaustive()
    }
}
