//! [`Handle`]: one instance, for whoever asked for it.

use crate::{InstanceStatus, Outcome, Service, instance::Instance};
use std::{fmt, sync::Arc};

/// An instance, in this term. Cloning shares it; holding it keeps nothing running.
pub struct Handle<S: Service>(Arc<Instance<S>>);

/// An instance ended before its document was written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the instance ended before its document was written: {0}")]
pub struct NotPersisted(pub Outcome);

impl<S: Service> Handle<S> {
    pub(crate) fn new(instance: Arc<Instance<S>>) -> Self {
        Self(instance)
    }

    /// Which instance.
    pub fn id(&self) -> &S::Id {
        &self.0.id
    }

    /// The task itself, to talk to it.
    pub fn task(&self) -> &S::Task {
        &self.0.task
    }

    /// How it ended in this term, if it has.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.0.outcome()
    }

    /// How it is doing.
    pub fn status(&self) -> InstanceStatus {
        InstanceStatus::of(&*self.0)
    }

    /// Resolves once the instance's document stands: from then on it survives this process. At once for one
    /// that was rebuilt.
    ///
    /// # Errors
    /// When the instance has ended without.
    ///
    /// # Cancel safety
    /// May be dropped and asked again at will; any number may wait.
    pub async fn persisted(&self) -> Result<(), NotPersisted> {
        self.0.persisted().await.map_err(NotPersisted)
    }

    /// Resolves when the instance has ended in this term, on every path: done, failed, panicked, interrupted,
    /// or never begun. By then the service has forgotten it, unless its document stands.
    ///
    /// # Cancel safety
    /// May be dropped and asked again at will; any number may wait.
    pub async fn completed(&self) -> Outcome {
        self.0.ended().await
    }

    /// Whether both are the same instance, of the same term.
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
