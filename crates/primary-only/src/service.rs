//! [`Service`] and [`Task`]: the traits that a user of this crate implements.

use crate::{BoxError, Failure, InstanceId, RunContext, SchemaVersion, document::UnknownSchema};
use async_trait::async_trait;
use ielections::Standing;
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt, sync::Arc};
use tokio_util::sync::CancellationToken;

/// The existing instances, in the order of their ids.
pub type ExistingTasks<'list, S> =
    Box<dyn Iterator<Item = (&'list <S as Service>::Id, &'list <S as Service>::Task)> + 'list>;

/// A kind of task, registered once, with a collection of documents of its own.
#[async_trait]
pub trait Service: Send + Sync + Sized + 'static {
    /// The type of instances' ids. The id as text names the document within the collection.
    type Id: InstanceId;
    /// The persistent state of an instance. The next leader receives nothing else.
    type Doc: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// An instance's state and logic in this process.
    type Task: Task<Doc = Self::Doc>;

    /// The service's name, unique within a registry.
    const NAME: &'static str;
    /// The collection of its documents, unique within a registry. Documents do not move when it is renamed.
    const COLLECTION: &'static str = Self::NAME;
    /// The version of the documents that it writes. Raise it when older programs could not read them.
    const SCHEMA: SchemaVersion = SchemaVersion::FIRST;

    /// Prepares a term, before the documents are read: for shared resources, and to repair documents.
    ///
    /// The future is dropped half-way only if [`Registry::lead`](crate::Registry::lead) is. End it soon after `cx.stop`.
    ///
    /// # Errors
    /// Why the service can't be rebuilt. It stays [`RebuildFailed`](crate::ServiceState::RebuildFailed) until
    /// the term ends. A panic has the same effect.
    async fn prepare(&self, cx: PrepareContext) -> Result<(), BoxError> {
        drop(cx);
        Ok(())
    }

    /// Checks that a new instance may exist beside the others.
    ///
    /// Only [`get_or_create`](crate::ServiceHandle::get_or_create) calls it, not a rebuild. It runs under a
    /// lock: do not wait, and do not call the service.
    ///
    /// # Errors
    /// Why the instance may not exist.
    fn conflicts(
        &self,
        id: &Self::Id,
        doc: &Self::Doc,
        others: ExistingTasks<'_, Self>,
    ) -> Result<(), BoxError> {
        let _ = (id, doc, others);
        Ok(())
    }

    /// Makes an instance from its document, stored or new.
    ///
    /// It may run under a lock: do not wait, and do not call the service. [`Task::run`] does the work.
    ///
    /// # Errors
    /// Why no instance can be made. A stored document is then quarantined. A panic has the same effect in a
    /// rebuild, and reaches the caller of [`get_or_create`](crate::ServiceHandle::get_or_create).
    fn build(&self, id: &Self::Id, doc: &Self::Doc) -> Result<Self::Task, BoxError>;

    /// Reads the JSON of a document whose version is not [`SCHEMA`](Self::SCHEMA). The instance's next write
    /// stores it with the current version.
    ///
    /// # Errors
    /// Why it can't be read. The document is then quarantined. The default refuses every version.
    fn upgrade(&self, from: SchemaVersion, json: &[u8]) -> Result<Self::Doc, BoxError> {
        let _ = json;
        Err(Box::new(UnknownSchema { written: from, read: Self::SCHEMA }))
    }
}

/// One instance: a state machine whose state is one document.
///
/// A run starts no work that outlives it. Concurrent parts belong into the same future (`join!`), so that nothing
/// continues after it has ended, panicked or was dropped (I6). What `spawn_blocking` and `tokio::fs` do continues after a
/// panic or a drop: await it outside of `run_until_cancelled`, or use `block_in_place` if the runtime has several threads.
#[async_trait]
pub trait Task: Send + Sync + 'static {
    /// The same type as [`Service::Doc`].
    type Doc;

    /// Continues the work from the state in the document. Ends soon after `cx.stop`.
    ///
    /// Called at most once for each value, and not at all if the term ends first. Only a run writes the
    /// document. A new instance is lost with its process until [`insert`](crate::StateCell::insert). From
    /// then on it runs in every term until [`delete`](crate::StateCell::delete).
    ///
    /// # Errors
    /// Why the task is not done. If its document exists, the next leader runs it again. A panic has the same effect.
    async fn run(&self, cx: RunContext<Self::Doc>) -> Result<(), BoxError>;

    /// Returns whether this instance satisfies a request with this document. Runs under a lock, as [`Service::build`].
    fn same_request(&self, doc: &Self::Doc) -> bool {
        let _ = doc;
        true
    }

    /// Returns the task's progress, for operators. Called at any time, from any thread.
    fn report(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// The arguments of [`Service::prepare`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PrepareContext {
    /// Cancelled when the term ends.
    pub stop: CancellationToken,
    /// The leadership: its epoch, time left and documents.
    pub standing: Standing,
}

impl PrepareContext {
    pub(crate) fn new(stop: CancellationToken, standing: Standing) -> Self {
        Self { stop, standing }
    }
}

/// How an instance ended in this term. If its document exists, it runs again in the next term, whatever the outcome.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The run returned `Ok`: the task is done.
    Completed,
    /// The run returned an error.
    Failed(Failure),
    /// The run panicked with this message.
    Panicked(Arc<str>),
    /// The term or the runtime ended before the run did, or before it began.
    Interrupted,
}

impl Outcome {
    /// Returns whether the task is done.
    pub fn is_completed(&self) -> bool {
        matches!(self, Self::Completed)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed => out.write_str("completed"),
            Self::Failed(failure) => write!(out, "failed: {failure}"),
            Self::Panicked(message) => write!(out, "panicked: {message}"),
            Self::Interrupted => out.write_str("interrupted"),
        }
    }
}
