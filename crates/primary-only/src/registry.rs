//! [`Registry`]: the services of a process, fixed before a term begins.

use crate::{
    InstanceStatus, NotACollection, RegistryConfig, Service, ServiceHandle, ServiceStatus,
    collection::Collection,
    roster::Roster,
    turns::{Term, Turns},
};
use async_trait::async_trait;
use std::{collections::BTreeSet, fmt, sync::Arc};

/// Collects services, and makes a [`Registry`] of them.
#[derive(Debug)]
pub struct RegistryBuilder {
    config: Arc<RegistryConfig>,
    names: BTreeSet<&'static str>,
    collections: BTreeSet<&'static str>,
    services: Vec<Arc<dyn AnyService>>,
}

/// The services of a process. Clones share them.
///
/// They run only while [`lead`](Self::lead) does.
#[derive(Clone, Debug)]
pub struct Registry {
    pub(crate) config: Arc<RegistryConfig>,
    pub(crate) services: Arc<[Arc<dyn AnyService>]>,
    pub(crate) turns: Arc<Turns>,
}

/// The service can't be registered beside the others.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegisterError {
    /// Another service has the name.
    #[error("there is a service named {0} already")]
    Name(&'static str),
    /// Another service has the collection, and would read the same documents.
    #[error("the collection {0} belongs to another service already")]
    Collection(&'static str),
    /// The collection's name is not valid.
    #[error(transparent)]
    NotACollection(#[from] NotACollection),
}

/// A [`Roster`] with its type erased.
#[async_trait]
pub(crate) trait AnyService: Send + Sync {
    fn name(&self) -> &'static str;
    async fn step_up(self: Arc<Self>, term: Arc<Term>);
    fn end_term(&self);
    async fn joined(&self);
    fn clear(&self);
    fn running(&self) -> Vec<String>;
    fn status(&self) -> ServiceStatus;
    fn instances(&self, most: usize) -> Vec<InstanceStatus>;
}

impl RegistryBuilder {
    /// Returns a builder without services.
    pub fn new(config: RegistryConfig) -> Self {
        Self {
            config: Arc::new(config),
            names: BTreeSet::new(),
            collections: BTreeSet::new(),
            services: Vec::new(),
        }
    }

    /// Adds a service, and returns the program's access to it.
    ///
    /// # Errors
    /// Fails if the name or the collection is taken, or the collection's name is not valid.
    pub fn register<S: Service>(&mut self, service: S) -> Result<ServiceHandle<S>, RegisterError> {
        let collection = Collection::new(S::COLLECTION)?;
        if self.names.contains(S::NAME) {
            return Err(RegisterError::Name(S::NAME));
        }
        if !self.collections.insert(S::COLLECTION) {
            return Err(RegisterError::Collection(S::COLLECTION));
        }
        self.names.insert(S::NAME);
        let roster = Arc::new(Roster::new(service, collection, Arc::clone(&self.config)));
        self.services.push(Arc::clone(&roster) as Arc<dyn AnyService>);
        Ok(ServiceHandle::new(roster))
    }

    /// Returns the registry. No service can be added to it.
    pub fn build(self) -> Registry {
        Registry { config: self.config, services: self.services.into(), turns: Arc::default() }
    }
}

impl Registry {
    /// Returns the status of each service, in the order of registration.
    pub fn status(&self) -> Vec<ServiceStatus> {
        self.services.iter().map(|service| service.status()).collect()
    }

    /// Returns the status of each instance. Calls each one's [`Task::report`](crate::Task::report).
    pub fn instances(&self) -> Vec<InstanceStatus> {
        self.first_instances(usize::MAX)
    }

    /// Returns the status of the first `most` instances, and calls only their
    /// [`Task::report`](crate::Task::report): for pages that list a large registry.
    pub fn first_instances(&self, most: usize) -> Vec<InstanceStatus> {
        let mut instances = Vec::new();
        for service in self.services.iter() {
            instances.extend(service.instances(most - instances.len()));
        }
        instances
    }
}

#[async_trait]
impl<S: Service> AnyService for Roster<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    async fn step_up(self: Arc<Self>, term: Arc<Term>) {
        Roster::step_up(&self, &term).await;
    }

    fn end_term(&self) {
        Roster::end_term(self);
    }

    async fn joined(&self) {
        Roster::joined(self).await;
    }

    fn clear(&self) {
        Roster::clear(self);
    }

    fn running(&self) -> Vec<String> {
        Roster::running(self)
    }

    fn status(&self) -> ServiceStatus {
        Roster::status(self)
    }

    fn instances(&self, most: usize) -> Vec<InstanceStatus> {
        Roster::instances(self, most)
    }
}

impl fmt::Debug for dyn AnyService {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
