//! [`Handle`]: a reference to one instance.

use crate::{InstanceStatus, Outcome, Service, status::Instance};
use std::{fmt, sync::Arc};

/// A reference to an instance in this term. Clones refer to the same instance. It keeps nothing running.
pub struct Handle<S: Service>(Arc<Instance<S>>);

/// An instance ended before its document was written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the instance ended before its document was written: {0}")]
pub struct NotPersisted(pub Outcome);

impl<S: Service> Handle<S> {
    pub(crate) fn new(instance: Arc<Instance<S>>) -> Self {
        Self(instance)
    }

    /// Returns the instance's id.
    pub fn id(&self) -> &S::Id {
        &self.0.id
    }

    /// Returns the task.
    pub fn task(&self) -> &S::Task {
        &self.0.task
    }

    /// Returns how the instance ended in this term, if it has.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.0.outcome()
    }

    /// Returns the instance's status.
    pub fn status(&self) -> InstanceStatus {
        InstanceStatus::of(&*self.0)
    }

    /// Waits until the instance's document exists, so that the instance survives this process. Returns at
    /// once for a rebuilt instance.
    ///
    /// # Errors
    /// Fails if the instance ends without a document.
    ///
    /// # Cancel safety
    /// It may be dropped and called again. Several callers may wait at once.
    pub async fn persisted(&self) -> Result<(), NotPersisted> {
        self.0.persisted().await.map_err(NotPersisted)
    }

    /// Waits until the instance has ended in this term, and returns its outcome. An instance that never runs
    /// ends as [`Interrupted`](Outcome::Interrupted).
    ///
    /// By then the service no longer lists it, unless its document exists.
    ///
    /// # Cancel safety
    /// It may be dropped and called again. Several callers may wait at once.
    pub async fn completed(&self) -> Outcome {
        self.0.ended().await
    }

    /// Returns whether both refer to the same instance of the same term.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<S: Service> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Service> fmt::Debug for Handle<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {}", self.id(), S::NAME)
    }
}
