use crate::{
    BoxError, ExistingTasks, Failure, InstanceStatus, Outcome, Service, ServiceState, ServiceStatus, Task,
    roster::{AnyService as _, List, PlannedInstance, Roster},
    runner::start,
    state_cell::StoredVersion,
    status::Instance,
};
use ielections::BeyondDocumentLimits;
use std::{
    fmt,
    sync::{Arc, MutexGuard},
};

/// A registered service. Clones share it.
///
/// # Cancel safety
/// Every future here may be dropped at any time. It then has taken effect completely or not at all.
pub struct ServiceHandle<S: Service>(Arc<Roster<S>>);

/// The service can't answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unavailable {
    /// This process does not lead, or its term ended during the call. Call the leader.
    #[error("this process does not lead")]
    NotLeader,
    /// The service could not be rebuilt in this term.
    #[error("the service could not be rebuilt: {0}")]
    RebuildFailed(#[source] Failure),
    /// No instance can be made from the document of this id. Repair or delete the document.
    #[error("the document of {id} is quarantined; repair or delete it: {reason}")]
    Quarantined {
        /// The instance's id.
        id: String,
        /// Why no instance can be made.
        reason: String,
    },
}

/// There is no instance for the request.
#[derive(Debug, thiserror::Error)]
pub enum GetOrCreateError {
    /// The service can't answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The instance of this id is for another request ([`Task::same_request`]).
    #[error("there is an instance of {0} already, for another request")]
    AnotherRequest(String),
    /// The new instance conflicts with another one ([`Service::conflicts`]).
    #[error("conflicts with another instance: {0}")]
    Conflict(#[source] BoxError),
    /// No instance can be made from this document ([`Service::build`]).
    #[error("no instance was made: {0}")]
    Build(#[source] BoxError),
    /// The id exceeds the storage's limits.
    #[error(transparent)]
    TooLarge(BeyondDocumentLimits),
}

/// The result of [`ServiceHandle::get_or_create`].
pub struct GotOrCreated<S: Service> {
    /// The instance.
    pub handle: Handle<S>,
    /// Whether this call created it.
    pub created: bool,
}

impl<S: Service> ServiceHandle<S> {
    pub(crate) fn new(roster: Arc<Roster<S>>) -> Self {
        Self(roster)
    }

    /// Returns the instance of this id, if there is one. Waits while the service is being rebuilt.
    pub async fn lookup(&self, id: &S::Id) -> Result<Option<Handle<S>>, Unavailable> {
        let list = self.running().await?;
        match list.instances.get(id) {
            Some(instance) => Ok(Some(Handle::new(Arc::clone(instance)))),
            None => list.not_quarantined(id).map(|()| None),
        }
    }

    /// Returns all instances, in the order of their ids. Waits while the service is being rebuilt.
    pub async fn get_all(&self) -> Result<Vec<Handle<S>>, Unavailable> {
        let list = self.running().await?;
        Ok(list.instances.values().cloned().map(Handle::new).collect())
    }

    /// Returns the instance of this id if it is for the same request, or creates one. Waits during a rebuild.
    ///
    /// A new instance is lost with this process until its run has written its document ([`Handle::persisted`]).
    ///
    /// # Panics
    /// If the service's own code panics.
    pub async fn get_or_create(&self, id: S::Id, doc: S::Doc) -> Result<GotOrCreated<S>, GetOrCreateError> {
        let mut list = self.running().await?;
        if let Some(instance) = list.instances.get(&id) {
            return if instance.task.same_request(&doc) {
                Ok(GotOrCreated { handle: Handle::new(Arc::clone(instance)), created: false })
            } else {
                Err(GetOrCreateError::AnotherRequest(id.to_string()))
            };
        }
        list.not_quarantined(&id)?;
        let Some(term) = list.current.clone() else { return Err(Unavailable::NotLeader.into()) };
        let limits = term.term.documents.limits();
        limits.check_id(&self.0.collection.document(&id)).map_err(GetOrCreateError::TooLarge)?;
        let others: ExistingTasks<'_, S> =
            Box::new(list.instances.iter().map(|(id, other)| (id, &other.task)));
        self.0.service.conflicts(&id, &doc, others).map_err(GetOrCreateError::Conflict)?;
        let task = self.0.service.build(&id, &doc).map_err(GetOrCreateError::Build)?;
        let instance = Arc::new(Instance::<S>::new(id, task, false));
        let handle = Handle::new(Arc::clone(&instance));
        list.instances.insert(instance.id.clone(), Arc::clone(&instance));
        drop(list);
        start(&self.0, PlannedInstance { term, instance, doc, stored: StoredVersion::Absent });
        Ok(GotOrCreated { handle, created: true })
    }

    /// Returns the service's status.
    pub fn status(&self) -> ServiceStatus {
        self.0.status()
    }

    /// Returns the status of each instance, in the order of their ids.
    pub fn instances(&self) -> Vec<InstanceStatus> {
        self.0.instances(usize::MAX)
    }

    /// Waits until the service is rebuilt, and returns the locked list, so that it stays in this state.
    async fn running(&self) -> Result<MutexGuard<'_, List<S>>, Unavailable> {
        let mut waits_in = None;
        loop {
            let changed = self.0.state_changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that no change in between is missed.
            changed.as_mut().enable();
            {
                let list = self.0.list();
                // The term in which the call began has ended, even if another one has begun.
                if *waits_in.get_or_insert(list.term) != list.term {
                    return Err(Unavailable::NotLeader);
                }
                match &list.state {
                    ServiceState::NotLeading => return Err(Unavailable::NotLeader),
                    ServiceState::Running => return Ok(list),
                    ServiceState::RebuildFailed(failure) => {
                        return Err(Unavailable::RebuildFailed(Arc::clone(failure)));
                    }
                    ServiceState::Rebuilding => {}
                }
            }
            changed.await;
        }
    }
}

impl<S: Service> List<S> {
    fn not_quarantined(&self, id: &S::Id) -> Result<(), Unavailable> {
        if self.quarantined.is_empty() {
            return Ok(());
        }
        let id = id.to_string();
        match self.quarantined.get(&id) {
            Some(reason) => Err(Unavailable::Quarantined { id, reason: reason.clone() }),
            None => Ok(()),
        }
    }
}

impl<S: Service> Clone for ServiceHandle<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Service> fmt::Debug for ServiceHandle<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(S::NAME)
    }
}

impl<S: Service> fmt::Debug for GotOrCreated<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}, {}", self.handle, if self.created { "created" } else { "existing" })
    }
}

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
        InstanceStatus::from_instance(&*self.0)
    }

    /// Waits until the instance's document exists, so that the instance survives this process. Returns at once for a
    /// rebuilt instance. Fails if the instance ends without a document. Cancel safe; several callers may wait at once.
    pub async fn persisted(&self) -> Result<(), NotPersisted> {
        self.0.persisted().await.map_err(NotPersisted)
    }

    /// Waits until the instance has ended in this term, and returns its outcome. By then the service no longer lists
    /// it, unless its document exists. An instance that never runs ends as [`Interrupted`](Outcome::Interrupted).
    /// Cancel safe; several callers may wait at once.
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
