//! Fenced documents: only the leader of one epoch can write them, in the partition of its slot.
//!
//! **One number makes it safe.** A partition counts the batches that were ever written to it, and a batch names the
//! count that it follows ([`Fence`]). So each batch is applied at most once and in order, and a late copy is refused
//! (I2). The count also tells whether an unanswered batch was applied (I7).

mod writer;

pub use crate::storage::documents::{
    BatchOutcome, BeyondDocumentLimits, Document, DocumentId, DocumentLimits, DocumentStorage,
    DocumentVersion, DocumentWrite, Fence, FenceState, NotAnId, OnlyIf, Page, Scan,
};
use crate::{
    Epoch, Incarnation, ReadError, WriteError,
    protocol::LeaseEvent,
    state::{LeadershipState, Loss},
};
use async_trait::async_trait;
use std::{
    fmt,
    sync::{Arc, OnceLock},
};
use writer::{DocumentWriter, LedSlot};

/// The documents of one slot, for the time of one leadership. Cheap to clone. All clones share one queue: their writes
/// are applied in the order in which they were called.
///
/// Every write is fenced (I2): it is applied only if this leadership still holds the slot in the storage, however long
/// this process was paused. A deposed leader can do no harm with it. Writes that wait at the same time share a batch of
/// the storage. A batch is applied as a whole or not at all.
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
        let written = self.writer.write(self.access.slot(), batch).await;
        // A service ends by this error, and its host asks the standing whether it was a loss.
        if let Err(DocumentWriteError::Deposed { .. } | DocumentWriteError::Lost(_)) = &written {
            self.access.state().until_over().await;
        }
        written
    }

    /// Reads one document. Shows every write that has returned. Cancel safe.
    pub async fn get(&self, id: &DocumentId) -> Result<Option<Document>, DocumentReadError> {
        self.limits().check_id(id)?;
        self.read(self.access.partition.document(id)).await
    }

    /// Reads one page of documents, in the order of their ids. Shows every write of earlier leaderships, and every
    /// write of this one that has returned. Continue with [`Scan::after`] at [`Page::next`] until that is `None`.
    ///
    /// Cancel safe.
    pub async fn scan(&self, scan: &Scan) -> Result<Page, DocumentReadError> {
        self.read(self.access.partition.scan(scan)).await
    }

    async fn read<T: Send>(
        &self,
        read: impl Future<Output = Result<T, ReadError>> + Send,
    ) -> Result<T, DocumentReadError> {
        let outcome = self.writer.read(self.access.slot(), read).await;
        if let Err(DocumentReadError::Deposed { .. } | DocumentReadError::Lost(_)) = &outcome {
            self.access.state().until_over().await;
        }
        outcome
    }
}

impl fmt::Debug for Documents {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Documents").field(self.access.state()).finish()
    }
}

/// State, writer and partition of one leadership, in one allocation (I11).
pub(crate) struct DocumentAccess<P: ?Sized> {
    state: LeadershipState,
    /// Made when the work first uses documents (I11).
    writer: OnceLock<Arc<DocumentWriter>>,
    /// Last, since only the last field of a type may be unsized.
    partition: P,
}

impl<P> DocumentAccess<P> {
    pub(crate) fn new(state: LeadershipState, partition: P) -> Self {
        Self { state, writer: OnceLock::new(), partition }
    }
}

impl DocumentAccess<dyn Partition> {
    pub(crate) fn state(&self) -> &LeadershipState {
        &self.state
    }

    fn slot(&self) -> LedSlot<'_> {
        LedSlot { state: &self.state, partition: &self.partition }
    }

    fn writer(&self) -> Option<&Arc<DocumentWriter>> {
        self.writer.get()
    }

    fn open_writer(&self) -> Option<&Arc<DocumentWriter>> {
        match self.writer() {
            Some(writer) => Some(writer),
            None => {
                let limits = self.partition.limits()?;
                Some(self.writer.get_or_init(|| Arc::new(DocumentWriter::new(&self.state, limits))))
            }
        }
    }
}

/// Gives a renewal priority over the writer's batches, from before it is sent until it is dropped.
pub(crate) struct RenewalTurn(Arc<DocumentAccess<dyn Partition>>);

impl RenewalTurn {
    /// `None` if the work has not used documents.
    pub(crate) fn begin(access: &Arc<DocumentAccess<dyn Partition>>) -> Option<Self> {
        access.writer()?.partition_lock.begin_renewal();
        Some(Self(Arc::clone(access)))
    }

    pub(crate) async fn wait_for_batch(&self) {
        if let Some(writer) = self.0.writer() {
            writer.batch_answered(self.0.state()).await;
        }
    }
}

impl Drop for RenewalTurn {
    fn drop(&mut self) {
        if let Some(writer) = self.0.writer() {
            writer.partition_lock.end_renewal();
        }
    }
}

#[async_trait]
pub(crate) trait Partition: Send + Sync {
    fn limits(&self) -> Option<DocumentLimits>;
    async fn write(&self, fence: &Fence, batch: &[DocumentWrite]) -> Result<BatchOutcome, WriteError>;
    async fn fence_state(&self) -> Result<FenceState, ReadError>;
    async fn document(&self, id: &DocumentId) -> Result<Option<Document>, ReadError>;
    async fn scan(&self, scan: &Scan) -> Result<Page, ReadError>;
    /// Reports to the engine that the slot shows another leadership's record, or none, or that the storage was replaced.
    fn report(&self, epoch: Epoch, incarnation: Incarnation, shown: LeaseEvent);
}

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
    /// The leadership is over, or no time is left of it. Stop. A batch that was in flight may have been applied.
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
    /// Not written. Retrying is pointless until the operator corrects the cause, such as the schema.
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

#[derive(Clone, PartialEq, Eq, Debug)]
enum Over {
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
