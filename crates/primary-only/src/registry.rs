//! [`Registry`]: the services of a process, fixed before a term begins. [`Registry::lead`]: one term of all
//! services. They run under one leadership at a time, and under each at most once ([`Turns`]).

use crate::{
    InstanceStatus, NotACollection, Service, ServiceHandle, ServiceStatus, document::Collection,
    roster::Roster,
};
use async_trait::async_trait;
use futures_util::future::join_all;
use ielections::{
    Document, DocumentId, DocumentReadError, DocumentVersion, DocumentWrite, DocumentWriteError, Documents,
    Env, Epoch, Incarnation, Page, Scan, Spawn, Standing,
};
use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use vvm_clock::Clock;

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

impl fmt::Debug for dyn AnyService {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl Registry {
    /// Runs the services under a leadership until `stop`. Returns when none of their instances runs, so that
    /// the leadership may be released (I6).
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
    /// Dropping it interrupts the instances, but does not wait for them: do not release the leadership then.
    /// The next term waits for them.
    pub async fn lead(&self, standing: Standing, stop: CancellationToken) -> Result<(), LeadError> {
        let _turn = self.turns.take(&standing)?;
        let documents = standing.documents().ok_or(LeadError::NoDocuments)?;
        let term = Arc::new(Term::new(standing, documents));
        let end = StepDown { registry: self, term: &term };
        let rebuilding =
            join_all(self.services.iter().map(|service| Arc::clone(service).step_up(Arc::clone(&term))));
        let ending = async {
            tokio::select! {
                biased;
                () = term.stop.cancelled() => {}
                () = stop.cancelled() => {}
            }
            drop(end);
        };
        // A rebuild returns once the term has ended. It is not dropped, because it may be waiting for the
        // service's own code.
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

/// Ends the term of all services when it is dropped.
struct StepDown<'term> {
    registry: &'term Registry,
    term: &'term Term,
}

impl Drop for StepDown<'_> {
    fn drop(&mut self) {
        self.term.stop.cancel();
        self.registry.services.iter().for_each(|service| service.end_term());
    }
}

/// A term did not begin, or ended by itself. None of its instances runs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeadError {
    /// Another process leads, or may. Shut down, and campaign again.
    #[error(transparent)]
    Deposed(#[from] Deposed),
    /// The storage of this election has no fenced documents.
    #[error("the storage of this election has no fenced documents: choose another driver")]
    NoDocuments,
    /// The services run under another leadership. A process that leads several slots at once needs a registry
    /// for each.
    #[error("the services run under another leadership already")]
    Leading,
    /// The services ran under this leadership before.
    #[error("the services ran under this leadership before")]
    SameTerm,
}

#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    leading: bool,
    last: Option<Incarnation>,
}

/// The right to run the services, until it is dropped.
pub(crate) struct Turn<'turns>(&'turns Turns);

impl Turns {
    pub(crate) fn take(&self, standing: &Standing) -> Result<Turn<'_>, LeadError> {
        let mut state = self.state();
        if state.leading {
            return Err(LeadError::Leading);
        }
        let incarnation = standing.incarnation();
        if state.last == Some(incarnation) {
            return Err(LeadError::SameTerm);
        }
        *state = State { leading: true, last: Some(incarnation) };
        Ok(Turn(self))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state().leading = false;
    }
}

/// The storage refused this leader's fence, which ended the term: another process leads, or may.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("deposed{}", current.map(|epoch| format!(": epoch {epoch} leads")).unwrap_or_default())]
pub struct Deposed {
    /// The epoch of the record in the slot; `None` if the slot is vacant.
    pub current: Option<Epoch>,
}

#[derive(Debug)]
pub(crate) struct Term {
    pub(crate) standing: Standing,
    pub(crate) documents: Documents,
    /// Cancelled when the term ends. Each service has a child of it.
    pub(crate) stop: CancellationToken,
    deposed: OnceLock<Deposed>,
}

impl Term {
    pub(crate) fn new(standing: Standing, documents: Documents) -> Self {
        Self { standing, documents, stop: CancellationToken::new(), deposed: OnceLock::new() }
    }

    /// Writes one document. After the first refusal of the fence, no write is sent any more (I2).
    pub(crate) async fn write(&self, write: DocumentWrite) -> Result<DocumentVersion, DocumentWriteError> {
        if let Some(Deposed { current }) = self.deposed() {
            return Err(DocumentWriteError::Deposed { current: *current });
        }
        let written = self.documents.write(vec![write]).await;
        if let Err(DocumentWriteError::Deposed { current }) = written {
            self.depose(current);
        }
        written
    }

    pub(crate) async fn get(&self, id: &DocumentId) -> Result<Option<Document>, DocumentReadError> {
        self.checked(self.documents.get(id).await)
    }

    pub(crate) async fn scan(&self, scan: &Scan) -> Result<Page, DocumentReadError> {
        self.checked(self.documents.scan(scan).await)
    }

    pub(crate) fn deposed(&self) -> Option<&Deposed> {
        self.deposed.get()
    }

    /// Ends the term if the fence was refused.
    fn checked<T>(&self, read: Result<T, DocumentReadError>) -> Result<T, DocumentReadError> {
        if let Err(DocumentReadError::Deposed { current }) = read {
            self.depose(current);
        }
        read
    }

    fn depose(&self, current: Option<Epoch>) {
        let deposed = Deposed { current };
        if self.deposed.set(deposed.clone()).is_ok() {
            tracing::error!(epoch = %self.standing.epoch(), %deposed, "the term ends");
            self.stop.cancel();
        }
    }
}

/// The environment of a [`Registry`](crate::Registry).
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// Times the pauses between read attempts, and `join_timeout`.
    pub clock: Arc<dyn Clock>,
    /// Starts the tasks that drive instances.
    pub spawn: Arc<dyn Spawn>,
    /// How long instances may take to end after their term.
    ///
    /// Instances that take longer are listed in the log. A term that begins meanwhile does not rebuild their
    /// service. Choose it longer than one step of a task.
    pub join_timeout: Duration,
}

impl RegistryConfig {
    /// The default `join_timeout`. It equals the default `stop_timeout` of a VVM, which waits no longer.
    pub const JOIN_TIMEOUT: Duration = Duration::from_secs(8);

    /// Returns the default configuration in the environment of the elections.
    pub fn new(env: &Env) -> Self {
        Self {
            clock: Arc::clone(&env.clock),
            spawn: Arc::clone(&env.spawn),
            join_timeout: Self::JOIN_TIMEOUT,
        }
    }
}
