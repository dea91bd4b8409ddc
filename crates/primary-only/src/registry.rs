//! [`Registry`]: the services of a process, fixed before any of them starts.

use crate::{
    InstanceStatus, NotACollection, Service, ServiceHandle, ServiceStatus, collection::Collection,
    lead::Turns, roster::Roster, term::Term,
};
use async_trait::async_trait;
use ielections::{Env, Spawn};
use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};
use vvm_clock::Clock;

/// What a registry needs from outside.
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// Time, for the pauses between attempts to read, and for `join_timeout`.
    pub clock: Arc<dyn Clock>,
    /// Drives the instances.
    pub spawn: Arc<dyn Spawn>,
    /// How long instances have to end after their term: those that take longer are named in the log, and a
    /// term that begins meanwhile fails to rebuild their service. Not shorter than a step of theirs.
    pub join_timeout: Duration,
}

/// Services that don't run yet. The first step: [`register`](Self::register) each, then
/// [`build`](Self::build).
#[derive(Debug)]
pub struct RegistryBuilder {
    config: Arc<RegistryConfig>,
    names: BTreeSet<&'static str>,
    collections: BTreeSet<&'static str>,
    services: Vec<Arc<dyn Steps>>,
}

/// The services of a process. Cloning shares it.
///
/// Between leaderships they are paused: [`lead`](Self::lead) has them run under one.
#[derive(Clone, Debug)]
pub struct Registry {
    pub(crate) config: Arc<RegistryConfig>,
    pub(crate) services: Arc<[Arc<dyn Steps>]>,
    pub(crate) turns: Arc<Turns>,
}

/// A service can't be registered beside those that are.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegisterError {
    /// There is a service of this name.
    #[error("there is a service named {0} already")]
    Name(&'static str),
    /// Two services would read each other's documents.
    #[error("the collection {0} belongs to another service already")]
    Collection(&'static str),
    /// The collection has no name that works.
    #[error(transparent)]
    NotACollection(#[from] NotACollection),
}

/// A service, whatever its types.
#[async_trait]
pub(crate) trait Steps: Send + Sync {
    fn name(&self) -> &'static str;
    async fn step_up(self: Arc<Self>, term: Arc<Term>);
    /// Interrupts all, waits for none.
    fn step_down(&self);
    /// Waits until nothing of it runs.
    async fn joined(&self);
    fn clear(&self);
    fn at_work(&self) -> Vec<String>;
    fn status(&self) -> ServiceStatus;
    /// At most so many, in the order of their ids.
    fn instances(&self, most: usize) -> Vec<InstanceStatus>;
}

impl RegistryConfig {
    /// The default of [`RegistryConfig::join_timeout`]: that of a VVM's `stop_timeout`, after which it waits
    /// no longer.
    pub const JOIN_TIMEOUT: Duration = Duration::from_secs(8);

    /// The usual configuration, in the environment that the elections run in.
    pub fn new(env: &Env) -> Self {
        Self {
            clock: Arc::clone(&env.clock),
            spawn: Arc::clone(&env.spawn),
            join_timeout: Self::JOIN_TIMEOUT,
        }
    }
}

impl RegistryBuilder {
    /// No services yet.
    pub fn new(config: RegistryConfig) -> Self {
        Self {
            config: Arc::new(config),
            names: BTreeSet::new(),
            collections: BTreeSet::new(),
            services: Vec::new(),
        }
    }

    /// Adds a service, and returns what the program asks it by.
    ///
    /// # Errors
    /// When its name or its collection is taken.
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
        self.services.push(Arc::clone(&roster) as Arc<dyn Steps>);
        Ok(ServiceHandle::new(roster))
    }

    /// That is all of them: no service is added from here on.
    pub fn build(self) -> Registry {
        Registry { config: self.config, services: self.services.into(), turns: Arc::default() }
    }
}

impl Registry {
    /// How each service is doing, in the order of their registration.
    pub fn status(&self) -> Vec<ServiceStatus> {
        self.services.iter().map(|service| service.status()).collect()
    }

    /// How each instance is doing. Calls [`Task::report`](crate::Task::report) of every one.
    pub fn instances(&self) -> Vec<InstanceStatus> {
        self.first_instances(usize::MAX)
    }

    /// How the first `most` instances are doing, service by service: for a page that somebody reads, of a
    /// registry that may have a hundred thousand. Calls [`Task::report`](crate::Task::report) of these alone.
    pub fn first_instances(&self, most: usize) -> Vec<InstanceStatus> {
        let mut instances = Vec::new();
        for service in self.services.iter() {
            instances.extend(service.instances(most - instances.len()));
        }
        instances
    }
}

#[async_trait]
impl<S: Service> Steps for Roster<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    async fn step_up(self: Arc<Self>, term: Arc<Term>) {
        Roster::step_up(&self, &term).await;
    }

    fn step_down(&self) {
        self.leave();
    }

    async fn joined(&self) {
        Roster::joined(self).await;
    }

    fn clear(&self) {
        Roster::clear(self);
    }

    fn at_work(&self) -> Vec<String> {
        Roster::at_work(self)
    }

    fn status(&self) -> ServiceStatus {
        Roster::status(self)
    }

    fn instances(&self, most: usize) -> Vec<InstanceStatus> {
        Roster::instances(self, most)
    }
}

impl fmt::Debug for dyn Steps {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
