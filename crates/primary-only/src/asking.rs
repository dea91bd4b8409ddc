//! [`ServiceHandle`]: what a program asks of a service: which instances there are, and for new ones.
//!
//! While a service is being rebuilt, every question waits: it could not be answered truthfully yet.

use crate::{
    BoxError, Failure, Handle, InstanceStatus, Service, ServiceState, ServiceStatus, Task,
    instance::Instance,
    roster::{List, Roster},
    runner::Queued,
    state_cell::Stands,
};
use ielections::BeyondDocumentLimits;
use std::{
    collections::btree_map,
    fmt,
    sync::{Arc, MutexGuard},
};

/// A service that was registered. Cloning shares it.
///
/// # Cancel safety
/// Every future here may be dropped at any time: it is done whole, or nothing of it is.
pub struct ServiceHandle<S: Service>(Arc<Roster<S>>);

/// A service can't answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unavailable {
    /// This process does not lead, or its term ended meanwhile. Ask the leader.
    #[error("this process does not lead")]
    NotLeader,
    /// The service could not be rebuilt in this term.
    #[error("the service could not be rebuilt: {0}")]
    RebuildFailed(#[source] Failure),
    /// The document of this id makes no instance. It is left as it stands: mend it or delete it.
    #[error("the document of {id} makes no instance: {reason}")]
    Quarantined {
        /// Which.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// No instance for this request.
#[derive(Debug, thiserror::Error)]
pub enum GetOrCreateError {
    /// The service can't answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// There is an instance of this id, for another request ([`Task::same_request`]).
    #[error("there is an instance of {0} already, for another request")]
    AnotherRequest(String),
    /// A new instance may not begin beside the others ([`Service::conflicts`]).
    #[error("conflicts with another instance: {0}")]
    Conflict(#[source] BoxError),
    /// The service makes no instance of this document ([`Service::build`]).
    #[error("no instance was made: {0}")]
    Build(#[source] BoxError),
    /// The storage can't carry a document of this id.
    #[error(transparent)]
    TooLarge(BeyondDocumentLimits),
}

/// An instance that was asked for.
pub struct GotOrCreated<S: Service> {
    /// The instance.
    pub handle: Handle<S>,
    /// Whether it was created for this request.
    pub created: bool,
}

/// The instances that there are, in the order of their ids: what [`Service::conflicts`] may look at.
pub struct Others<'list, S: Service>(btree_map::Iter<'list, S::Id, Arc<Instance<S>>>);

impl<S: Service> ServiceHandle<S> {
    pub(crate) fn new(roster: Arc<Roster<S>>) -> Self {
        Self(roster)
    }

    /// The instance of this id, if there is one. Waits while the service is being rebuilt.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn lookup(&self, id: &S::Id) -> Result<Option<Handle<S>>, Unavailable> {
        let list = self.running().await?;
        match list.instances.get(id) {
            Some(instance) => Ok(Some(Handle::new(Arc::clone(instance)))),
            None => list.not_quarantined(id).map(|()| None),
        }
    }

    /// All instances, in the order of their ids. Waits while the service is being rebuilt.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn get_all(&self) -> Result<Vec<Handle<S>>, Unavailable> {
        let list = self.running().await?;
        Ok(list.instances.values().cloned().map(Handle::new).collect())
    }

    /// The instance of this id: the one there is, if it is for the same request, or a new one. Waits while
    /// the service is being rebuilt.
    ///
    /// A new instance lives in this process alone until its own run has inserted its document:
    /// [`Handle::persisted`] tells when.
    ///
    /// # Errors
    /// [`GetOrCreateError`].
    ///
    /// # Panics
    /// If the service's own code does.
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
        let Some(current) = list.current.clone() else { return Err(Unavailable::NotLeader.into()) };
        let limits = current.term.documents.limits();
        limits.check_id(&self.0.collection.document(&id)).map_err(GetOrCreateError::TooLarge)?;
        let others = Others(list.instances.iter());
        self.0.service.conflicts(&id, &doc, others).map_err(GetOrCreateError::Conflict)?;
        let task = self.0.service.build(&id, &doc).map_err(GetOrCreateError::Build)?;
        let queued = Queued::new(&self.0, &current, Instance::new(id, task, false), doc, Stands::Not);
        let handle = Handle::new(Arc::clone(queued.instance()));
        let runners = self.0.admit(&mut list, queued);
        drop(list);
        self.0.start_runners(runners);
        Ok(GotOrCreated { handle, created: true })
    }

    /// How the service is doing.
    pub fn status(&self) -> ServiceStatus {
        self.0.status()
    }

    /// How each instance is doing, in the order of their ids.
    pub fn instances(&self) -> Vec<InstanceStatus> {
        self.0.instances(usize::MAX)
    }

    /// Waits out a rebuild, and returns the list while it is certain that the service runs.
    async fn running(&self) -> Result<MutexGuard<'_, List<S>>, Unavailable> {
        let mut waits_in = None;
        loop {
            let news = self.0.phases.notified();
            tokio::pin!(news);
            // Listening begins before looking, or news in between would go unheard.
            news.as_mut().enable();
            {
                let list = self.0.list();
                // A term that ended meanwhile is over, also if another one has begun.
                if *waits_in.get_or_insert(list.term) != list.term {
                    return Err(Unavailable::NotLeader);
                }
                match &list.phase {
                    ServiceState::Paused => return Err(Unavailable::NotLeader),
                    ServiceState::Running => return Ok(list),
                    ServiceState::RebuildFailed(failure) => {
                        return Err(Unavailable::RebuildFailed(Arc::clone(failure)));
                    }
                    ServiceState::Rebuilding => {}
                }
            }
            news.await;
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
        write!(out, "{:?}, {}", self.handle, if self.created { "created" } else { "there already" })
    }
}

impl<'list, S: Service> Iterator for Others<'list, S> {
    type Item = (&'list S::Id, &'list S::Task);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(id, instance)| (id, &instance.task))
    }
}

impl<S: Service> fmt::Debug for Others<'_, S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.0.clone().map(|(id, _)| id)).finish()
    }
}
