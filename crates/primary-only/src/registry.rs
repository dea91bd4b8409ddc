//! [`Registry`]: the services of a process, fixed before a term begins. [`Registry::lead`]: one term of all services.

use crate::{
    InstanceStatus, LeadError, NotACollection, Service, ServiceHandle, ServiceStatus,
    document::Collection,
    roster::{AnyService, RegistryConfig, Roster},
    term::{Term, TermGate},
};
use futures_util::future::join_all;
use ielections::Standing;
use std::{collections::BTreeSet, sync::Arc};
use tokio_util::sync::CancellationToken;

/// Collects services, and makes a [`Registry`] of them.
#[derive(Debug)]
pub struct RegistryBuilder {
    config: Arc<RegistryConfig>,
    names: BTreeSet<&'static str>,
    collections: BTreeSet<&'static str>,
    services: Vec<Arc<dyn AnyService>>,
}

/// The services of a process, which run only while [`lead`](Self::lead) does. Clones share them.
#[derive(Clone, Debug)]
pub struct Registry {
    config: Arc<RegistryConfig>,
    services: Arc<[Arc<dyn AnyService>]>,
    turns: Arc<TermGate>,
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

    /// Adds a service, and returns access to it. Fails if its name or collection is taken, or the latter invalid.
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

    /// [`instances`](Self::instances), of the first `most` alone: for pages that list a large registry.
    pub fn first_instances(&self, most: usize) -> Vec<InstanceStatus> {
        let mut instances = Vec::new();
        for service in self.services.iter() {
            instances.extend(service.instances(most - instances.len()));
        }
        instances
    }

    /// Runs the services under a leadership until `stop`, or until it is lost. Returns when none of their instances
    /// runs, so that the leadership may be released (I6).
    ///
    /// In a program on `vvm-host`, one service calls this function and does nothing else:
    ///
    /// ```
    /// # use {ielections::Key, primary_only::Registry, vvm_orch::{Service, service_fn}};
    /// fn primary_only<K: Key>(registry: Registry) -> Box<dyn Service<K>> {
    ///     service_fn("primary-only", async move |cx| Ok(registry.lead(cx.standing, cx.stop).await?))
    /// }
    /// ```
    ///
    /// If an instance does not end, this function waits for it until the kill deadline ends the process.
    /// After [`RegistryConfig::join_timeout`](crate::RegistryConfig) it logs which instances still run.
    ///
    /// # Errors
    /// [`LeadError`]. No instance of this term runs then.
    ///
    /// # Cancel safety
    /// Dropping it interrupts the instances without waiting, so keep the leadership. The next term waits for them.
    pub async fn lead(&self, standing: Standing, stop: CancellationToken) -> Result<(), LeadError> {
        let _turn = self.turns.take(&standing)?;
        let documents = standing.documents().ok_or(LeadError::NoDocuments)?;
        let term = Arc::new(Term::new(standing, documents));
        let end = EndTerm { registry: self, term: &term };
        let rebuilding =
            join_all(self.services.iter().map(|service| Arc::clone(service).step_up(Arc::clone(&term))));
        let ending = async {
            tokio::select! {
                biased;
                () = term.stop.cancelled() => {}
                () = stop.cancelled() => {}
                _ = term.standing.lost() => {}
            }
            drop(end);
        };
        // A rebuild returns once the term has ended. It is not dropped: it may be waiting for the service's own code.
        tokio::join!(rebuilding, ending);
        self.join().await;
        match term.deposed() {
            Some(deposed) => Err(deposed.clone().into()),
            None => Ok(()),
        }
    }

    /// Waits until nothing of any service runs (I6).
    async fn join(&self) {
        let joined = join_all(self.services.iter().map(|service| service.joined()));
        tokio::pin!(joined);
        let in_time = tokio::select! {
            biased;
            _ = &mut joined => true,
            () = self.config.clock.sleep(self.config.join_timeout) => false,
        };
        if !in_time {
            let running: Vec<_> = self.services.iter().flat_map(|service| service.running()).collect();
            let running = running.join(", ");
            tracing::error!(running, "instances do not end, so the leadership can't be released");
            joined.await;
        }
        self.services.iter().for_each(|service| service.clear());
    }
}

struct EndTerm<'term> {
    registry: &'term Registry,
    term: &'term Term,
}

impl Drop for EndTerm<'_> {
    fn drop(&mut self) {
        self.term.stop.cancel();
        self.registry.services.iter().for_each(|service| service.end_term());
    }
}
