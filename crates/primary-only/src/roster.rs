//! [`Roster`]: the instances of one service, and its state in the term, behind one lock.

use crate::{
    Failure, InstanceState, InstanceStatus, Outcome, Quarantined, Service, ServiceState, ServiceStatus,
    document::Collection, state_cell::StoredVersion, status::Instance, term::Term,
};
use async_trait::async_trait;
use ielections::{Env, Spawn};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use vvm_clock::Clock;

/// The environment of a [`Registry`](crate::Registry).
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// Times the pauses between read attempts, and `join_timeout`.
    pub clock: Arc<dyn Clock>,
    /// Starts the tasks that drive instances.
    pub spawn: Arc<dyn Spawn>,
    /// How long instances may take to end after their term. Instances that take longer are listed in the log. A term
    /// that begins meanwhile does not rebuild their service. Choose it longer than one step of a task.
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

pub(crate) struct Roster<S: Service> {
    pub(crate) service: S,
    pub(crate) collection: Collection,
    pub(crate) config: Arc<RegistryConfig>,
    list: Mutex<List<S>>,
    pub(crate) state_changed: Notify,
    /// Every task of an instance has a receiver, so that this is closed when none is left.
    pub(crate) runners: watch::Sender<()>,
}

#[async_trait]
pub(crate) trait AnyService: Send + Sync {
    fn name(&self) -> &'static str;
    /// Begins a term and rebuilds the service. Ends soon after the term does; callers do not drop it before.
    async fn step_up(self: Arc<Self>, term: Arc<Term>);
    fn end_term(&self);
    async fn joined(&self);
    fn clear(&self);
    fn running(&self) -> Vec<String>;
    fn status(&self) -> ServiceStatus;
    fn instances(&self, most: usize) -> Vec<InstanceStatus>;
}

pub(crate) struct List<S: Service> {
    pub(crate) state: ServiceState,
    pub(crate) term: u64,
    /// The instances that a lookup finds. After the term: those that have not ended yet.
    pub(crate) instances: BTreeMap<S::Id, Arc<Instance<S>>>,
    /// Instances whose documents were deleted and that still run.
    departing: BTreeMap<S::Id, Arc<Instance<S>>>,
    pub(crate) quarantined: BTreeMap<String, String>,
    rebuilt_in: Option<Duration>,
    pub(crate) current: Option<ServiceTerm>,
}

/// An instance that was not run yet. Its task consumes it, so each is run at most once.
pub(crate) struct PlannedInstance<S: Service> {
    pub(crate) term: ServiceTerm,
    pub(crate) instance: Arc<Instance<S>>,
    pub(crate) doc: S::Doc,
    pub(crate) stored: StoredVersion,
}

#[derive(Clone)]
pub(crate) struct ServiceTerm {
    pub(crate) term: Arc<Term>,
    number: u64,
    /// Cancelled when the term ends, or earlier if the rebuild fails.
    pub(crate) stop: CancellationToken,
}

impl ServiceTerm {
    pub(crate) fn is_over(&self) -> bool {
        self.stop.is_cancelled() || self.term.standing.loss().is_some()
    }
}

impl<S: Service> Roster<S> {
    pub(crate) fn new(service: S, collection: Collection, config: Arc<RegistryConfig>) -> Self {
        let list = Mutex::new(List {
            state: ServiceState::NotLeading,
            term: 0,
            instances: BTreeMap::new(),
            departing: BTreeMap::new(),
            quarantined: BTreeMap::new(),
            rebuilt_in: None,
            current: None,
        });
        let (state_changed, runners) = (Notify::new(), watch::Sender::new(()));
        Self { service, collection, config, list, state_changed, runners }
    }

    pub(crate) fn list(&self) -> MutexGuard<'_, List<S>> {
        // A service's code that panics under the lock runs before any change, so the data is consistent.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin_term(&self, term: &Arc<Term>) -> ServiceTerm {
        let mut list = self.list();
        list.term += 1;
        let stop = term.stop.child_token();
        let current = ServiceTerm { term: Arc::clone(term), number: list.term, stop };
        list.current = Some(current.clone());
        list.state = ServiceState::Rebuilding;
        current
    }

    /// Ends the rebuild: Rebuilding becomes Running or RebuildFailed, unless the term is over.
    pub(crate) fn rebuilt(&self, current: &ServiceTerm, outcome: Result<(), Failure>, took: Duration) {
        let mut list = self.list();
        if !list.is_current(current) {
            return;
        }
        list.rebuilt_in = Some(took);
        match outcome {
            Ok(()) => list.state = ServiceState::Running,
            Err(failure) => {
                tracing::error!(
                    service = S::NAME, %failure,
                    "the service was not rebuilt; none of its instances runs in this term"
                );
                list.state = ServiceState::RebuildFailed(failure);
                // No caller could reach the instances that run already.
                current.stop.cancel();
            }
        }
        drop(list);
        self.state_changed.notify_waiters();
    }

    /// Takes an instance whose document was deleted out of the list. Its run continues.
    pub(crate) fn depart(&self, instance: &Arc<Instance<S>>) {
        instance.delete();
        let mut list = self.list();
        if list.has(instance) {
            list.instances.remove(&instance.id);
            list.departing.insert(instance.id.clone(), Arc::clone(instance));
        }
    }

    pub(crate) fn end(&self, instance: &Arc<Instance<S>>, outcome: Outcome) {
        let mut list = self.list();
        if list.departing.get(&instance.id).is_some_and(|departing| Arc::ptr_eq(departing, instance)) {
            list.departing.remove(&instance.id);
        } else if list.has(instance) && !instance.has_document() {
            list.instances.remove(&instance.id);
        }
        drop(list);
        // After the removal: a caller that has seen the end must not find the instance.
        instance.end(outcome);
    }

    pub(crate) fn predecessor(&self, id: &S::Id) -> Option<Arc<Instance<S>>> {
        self.list().departing.get(id).cloned()
    }
}

#[async_trait]
impl<S: Service> AnyService for Roster<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    async fn step_up(self: Arc<Self>, term: Arc<Term>) {
        self.begin_and_rebuild(&term).await;
    }

    /// Ends the term in any state. Interrupts all instances, and does not wait for them.
    fn end_term(&self) {
        let mut list = self.list();
        if let Some(current) = list.current.take() {
            current.stop.cancel();
        }
        list.state = ServiceState::NotLeading;
        drop(list);
        self.state_changed.notify_waiters();
    }

    /// Waits until nothing of the service runs (I6, I9).
    async fn joined(&self) {
        self.runners.closed().await;
    }

    fn clear(&self) {
        let mut list = self.list();
        list.departing.clear();
        list.quarantined.clear();
        let instances = std::mem::take(&mut list.instances);
        drop(list);
        drop(instances);
    }

    fn running(&self) -> Vec<String> {
        let list = self.list();
        let running = list.in_state(InstanceState::Running);
        running.map(|instance| format!("{} of {}", instance.id, S::NAME)).collect()
    }

    fn status(&self) -> ServiceStatus {
        let list = self.list();
        let quarantined = list.quarantined.iter();
        ServiceStatus {
            service: S::NAME,
            failure: match &list.state {
                ServiceState::RebuildFailed(failure) => Some(failure.to_string()),
                _ => None,
            },
            state: list.state.clone(),
            instances: list.instances.len(),
            running: list.in_state(InstanceState::Running).count(),
            waiting: list.in_state(InstanceState::Waiting).count(),
            rebuilt_in: list.rebuilt_in,
            quarantined: quarantined
                .map(|(id, reason)| Quarantined { id: id.clone(), reason: reason.clone() })
                .collect(),
        }
    }

    fn instances(&self, most: usize) -> Vec<InstanceStatus> {
        // Collected first: a report is the service's code, which may call the service.
        let instances: Vec<_> = self.list().instances.values().take(most).cloned().collect();
        instances.iter().map(|instance| InstanceStatus::from_instance(instance)).collect()
    }
}

impl<S: Service> List<S> {
    pub(crate) fn is_current(&self, term: &ServiceTerm) -> bool {
        self.current.as_ref().is_some_and(|current| current.number == term.number)
    }

    fn has(&self, instance: &Arc<Instance<S>>) -> bool {
        self.instances.get(&instance.id).is_some_and(|listed| Arc::ptr_eq(listed, instance))
    }

    fn in_state(&self, state: InstanceState) -> impl Iterator<Item = &Arc<Instance<S>>> {
        let all = self.instances.values().chain(self.departing.values());
        all.filter(move |instance| instance.state() == state)
    }
}

impl fmt::Debug for dyn AnyService {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
