//! [`Service`] and [`Task`]: what people write. A service says how its instances are made; a task is one of
//! them.

use crate::{BoxError, Others, RunContext, SchemaVersion, envelope::UnknownSchema};
use async_trait::async_trait;
use ielections::Standing;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt::{Debug, Display},
    num::NonZeroUsize,
    str::FromStr,
};
use tokio_util::sync::CancellationToken;

/// What tells the instances of a service apart: anything that reads back from its text as it was. Ordered, so
/// that whatever goes over instances does so the same way twice.
pub trait InstanceId:
    Clone + Ord + Debug + Display + FromStr<Err: Into<BoxError>> + Send + Sync + 'static
{
}
impl<Id> InstanceId for Id where
    Id: Clone + Ord + Debug + Display + FromStr<Err: Into<BoxError>> + Send + Sync + 'static
{
}

/// A kind of task: registered once, with a collection of documents of its own.
#[async_trait]
pub trait Service: Send + Sync + Sized + 'static {
    /// What tells instances apart. Its text is the name of the document within the collection.
    type Id: InstanceId;
    /// The state that survives: all that the next leader gets to know of an instance.
    type Doc: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// An instance's state and logic in this process.
    type Task: Task<Doc = Self::Doc>;

    /// The service's name, unique within a registry.
    const NAME: &'static str;
    /// Where its documents are; unique within a registry. Renaming it leaves the old documents behind.
    const COLLECTION: &'static str = Self::NAME;
    /// What the documents that it writes look like. Raise it when an older version of the program could not
    /// read them.
    const SCHEMA: SchemaVersion = SchemaVersion::FIRST;

    /// How many instances may run at once in this process; the others wait their turn, in the order in which
    /// they came. `None` is as many as there are.
    fn concurrency(&self) -> Option<NonZeroUsize> {
        None
    }

    /// Called once a term, before the documents are read: for what all instances need, and for documents that
    /// must be mended first. Waited for, never dropped half-way: end soon after `cx.stop`.
    ///
    /// # Errors
    /// Whatever keeps the service from being rebuilt. It stays
    /// [`RebuildFailed`](crate::ServiceState::RebuildFailed) until the term ends. A panic counts as one.
    async fn prepare(&self, cx: PrepareContext) -> Result<(), BoxError> {
        drop(cx);
        Ok(())
    }

    /// Whether a new instance may begin beside the others. Called by
    /// [`get_or_create`](crate::ServiceHandle::get_or_create) alone, never for what is rebuilt, and under a
    /// lock: neither wait in here nor ask the service.
    ///
    /// # Errors
    /// Why it may not.
    fn conflicts(&self, id: &Self::Id, doc: &Self::Doc, others: Others<'_, Self>) -> Result<(), BoxError> {
        let _ = (id, doc, others);
        Ok(())
    }

    /// Makes an instance from its document: from one that stands, or from the one it was asked for with.
    /// Called under a lock: neither wait in here nor ask the service, and leave work to [`Task::run`].
    ///
    /// # Errors
    /// Why this document makes no instance. One that stands is quarantined then.
    fn build(&self, id: &Self::Id, doc: &Self::Doc) -> Result<Self::Task, BoxError>;

    /// Reads a document of another [`SCHEMA`](Self::SCHEMA), given as JSON. Once the instance writes, the
    /// document has this one.
    ///
    /// # Errors
    /// The document is quarantined then. So is every document of another version unless this is implemented.
    fn upgrade(&self, from: SchemaVersion, json: &[u8]) -> Result<Self::Doc, BoxError> {
        let _ = json;
        Err(Box::new(UnknownSchema { written: from, read: Self::SCHEMA }))
    }
}

/// One instance: a state machine whose state is one document.
///
/// A run ends with everything that it started: what it wants done beside it, it drives itself (`join!`), so
/// that nothing of it is left when its future has ended or was dropped (I6).
#[async_trait]
pub trait Task: Send + Sync + 'static {
    /// As [`Service::Doc`].
    type Doc;

    /// Does the work, from where the document says it is. Called at most once in the life of this value, and
    /// never if the term ends before its turn. Ends soon after `cx.stop`.
    ///
    /// The document is written here and nowhere else: a new instance is nobody's concern but this process's
    /// until its run has called [`insert`](crate::StateCell::insert), and resumes in every term until it has
    /// called [`delete`](crate::StateCell::delete).
    ///
    /// # Errors
    /// Why the task did not get to its end. While its document stands, the next leader takes it up again. A
    /// panic is caught and counts as a failure, too.
    async fn run(&self, cx: RunContext<Self::Doc>) -> Result<(), BoxError>;

    /// Whether somebody who asks for an instance with this document may be given this one. Called under a
    /// lock, as [`Service::build`].
    fn same_request(&self, doc: &Self::Doc) -> bool {
        let _ = doc;
        true
    }

    /// Progress and status, for people and their dashboards. Called at any time, by anybody.
    fn report(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// What [`Service::prepare`] gets to know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PrepareContext {
    /// Cancelled when the term ends.
    pub stop: CancellationToken,
    /// The leadership: epoch, time left, documents.
    pub standing: Standing,
}

impl PrepareContext {
    pub(crate) fn new(stop: CancellationToken, standing: Standing) -> Self {
        Self { stop, standing }
    }
}
