//! [`Roster`]: the instances of one service, and the phase of its term. Each change of phase is made here,
//! under one lock.
//!
//! What does not live here: reading documents (`rebuild`), driving runs (`runner`), what callers ask
//! (`asking`).

use crate::{
    Course, Failure, InstanceStatus, Quarantined, RegistryConfig, Service, ServiceState, ServiceStatus,
    collection::Collection,
    instance::Instance,
    runner::{Queued, Runner},
    term::Term,
};
use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

pub(crate) struct Roster<S: Service> {
    pub(crate) service: S,
    pub(crate) collection: Collection,
    pub(crate) config: Arc<RegistryConfig>,
    concurrency: Option<NonZeroUsize>,
    list: Mutex<List<S>>,
    /// Rings when the phase changes.
    pub(crate) phases: Notify,
    /// Every runner listens to it, so that it is closed when none is left.
    crew: watch::Sender<()>,
}

/// What the lock protects.
pub(crate) struct List<S: Service> {
    pub(crate) phase: ServiceState,
    /// Counts the terms.
    pub(crate) term: u64,
    /// Those that a lookup finds; after the term, those whose end was not seen yet.
    pub(crate) instances: BTreeMap<S::Id, Arc<Instance<S>>>,
    /// Those whose documents were deleted and which still run.
    departing: BTreeMap<S::Id, Arc<Instance<S>>>,
    pub(crate) quarantined: BTreeMap<String, String>,
    /// Those that wait for their turn.
    queue: VecDeque<Queued<S>>,
    runners: usize,
    rebuilt_in: Option<Duration>,
    /// The term, as the service's instances see it.
    pub(crate) current: Option<Current>,
}

/// The term of one service.
#[derive(Clone)]
pub(crate) struct Current {
    pub(crate) term: Arc<Term>,
    pub(crate) number: u64,
    /// Ends with the term, or before it when the rebuild fails.
    pub(crate) stop: CancellationToken,
}

impl Current {
    /// Whether the term has ended, or is about to.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.is_cancelled() || self.term.standing.loss().is_some()
    }
}

impl<S: Service> Roster<S> {
    pub(crate) fn new(service: S, collection: Collection, config: Arc<RegistryConfig>) -> Self {
        let concurrency = service.concurrency();
        let list = List {
            phase: ServiceState::Paused,
            term: 0,
            instances: BTreeMap::new(),
            departing: BTreeMap::new(),
            quarantined: BTreeMap::new(),
            queue: VecDeque::new(),
            runners: 0,
            rebuilt_in: None,
            current: None,
        };
        let (list, phases, crew) = (Mutex::new(list), Notify::new(), watch::Sender::new(()));
        Self { service, collection, config, concurrency, list, phases, crew }
    }

    pub(crate) fn list(&self) -> MutexGuard<'_, List<S>> {
        // A panic of the service's own code can't leave it half-changed: it is called before anything is
        // changed.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a term: Paused becomes Rebuilding.
    pub(crate) fn enter(&self, term: &Arc<Term>) -> Current {
        let mut list = self.list();
        list.term += 1;
        let current = Current { term: Arc::clone(term), number: list.term, stop: term.stop.child_token() };
        list.current = Some(current.clone());
        list.phase = ServiceState::Rebuilding;
        current
    }

    /// Rebuilding becomes Running or RebuildFailed, once; unless the term is over.
    pub(crate) fn rebuilt(&self, current: &Current, outcome: Result<(), Failure>, took: Duration) {
        let mut list = self.list();
        if !list.is_current(current) {
            return;
        }
        list.rebuilt_in = Some(took);
        match outcome {
            Ok(()) => list.phase = ServiceState::Running,
            Err(failure) => {
                tracing::error!(service = S::NAME, %failure, "the service could not be rebuilt; nothing of it runs in this term");
                list.phase = ServiceState::RebuildFailed(failure);
                // Those that run already would run unseen.
                current.stop.cancel();
                let queued = std::mem::take(&mut list.queue);
                drop(list);
                drop(queued);
            }
        }
        self.phases.notify_waiters();
    }

    /// Ends the term, in whatever phase: interrupts all, waits for none.
    pub(crate) fn leave(&self) {
        let mut list = self.list();
        if let Some(current) = list.current.take() {
            current.stop.cancel();
        }
        list.phase = ServiceState::Paused;
        let queued = std::mem::take(&mut list.queue);
        drop(list);
        // Each ends as interrupted, which takes the lock.
        drop(queued);
        self.phases.notify_waiters();
    }

    /// Waits until nothing of the service runs (I6, I9).
    pub(crate) async fn joined(&self) {
        self.crew.closed().await;
    }

    /// Forgets what an earlier term has left.
    pub(crate) fn clear(&self) {
        let mut list = self.list();
        list.departing.clear();
        list.quarantined.clear();
        let instances = std::mem::take(&mut list.instances);
        drop(list);
        drop(instances);
    }

    /// Whose runs have begun and not ended.
    pub(crate) fn at_work(&self) -> Vec<String> {
        let list = self.list();
        let all = list.instances.values().chain(list.departing.values());
        all.filter(|instance| Course::of(instance) == Course::Running)
            .map(|instance| format!("{} of {}", instance.id, S::NAME))
            .collect()
    }

    /// Moves an instance whose document was deleted out of sight, without disturbing it.
    pub(crate) fn release(&self, instance: &Arc<Instance<S>>) {
        instance.release();
        let mut list = self.list();
        if list.has(instance) {
            list.instances.remove(&instance.id);
            list.departing.insert(instance.id.clone(), Arc::clone(instance));
        }
    }

    /// Takes out what has ended, unless its document stands and so keeps it.
    pub(crate) fn forget(&self, instance: &Arc<Instance<S>>) {
        let mut list = self.list();
        if list.departing.get(&instance.id).is_some_and(|departing| Arc::ptr_eq(departing, instance)) {
            list.departing.remove(&instance.id);
        } else if list.has(instance) && !instance.stands() {
            list.instances.remove(&instance.id);
        }
    }

    /// The instance of the same id that must end before this one runs.
    pub(crate) fn predecessor(&self, id: &S::Id) -> Option<Arc<Instance<S>>> {
        self.list().departing.get(id).cloned()
    }

    /// The next in the queue; or the runner goes.
    pub(crate) fn next_queued(&self) -> Option<Queued<S>> {
        let mut list = self.list();
        let next = list.queue.pop_front();
        if next.is_none() {
            list.runners -= 1;
        }
        next
    }

    /// A runner was dropped in the midst of its work.
    pub(crate) fn lost_a_runner(&self) {
        self.list().runners -= 1;
    }

    /// Takes instances into the list and the queue, and says how many runners they need beside those there
    /// are.
    pub(crate) fn admit(&self, list: &mut List<S>, admitted: Queued<S>) -> usize {
        let instance = Arc::clone(admitted.instance());
        list.instances.insert(instance.id.clone(), instance);
        list.queue.push_back(admitted);
        let most = self.concurrency.map_or(usize::MAX, NonZeroUsize::get);
        let wanted = usize::from(list.runners < most);
        list.runners += wanted;
        wanted
    }

    /// Starts runners that [`admit`](Self::admit) has counted.
    pub(crate) fn start_runners(self: &Arc<Self>, number: usize) {
        for _ in 0..number {
            Runner::start(Arc::clone(self), self.crew.subscribe());
        }
    }

    pub(crate) fn status(&self) -> ServiceStatus {
        let list = self.list();
        let running = |instance: &&Arc<Instance<S>>| Course::of(instance) == Course::Running;
        ServiceStatus {
            service: S::NAME,
            failure: match &list.phase {
                ServiceState::RebuildFailed(failure) => Some(failure.to_string()),
                _ => None,
            },
            state: list.phase.clone(),
            instances: list.instances.len(),
            running: list.instances.values().chain(list.departing.values()).filter(running).count(),
            waiting: list.queue.len(),
            rebuilt_in: list.rebuilt_in,
            quarantined: list
                .quarantined
                .iter()
                .map(|(id, reason)| Quarantined { id: id.clone(), reason: reason.clone() })
                .collect(),
        }
    }

    /// At most so many, in the order of their ids.
    pub(crate) fn instances(&self, most: usize) -> Vec<InstanceStatus> {
        let instances: Vec<_> = self.list().instances.values().take(most).cloned().collect();
        instances.iter().map(|instance| InstanceStatus::of(instance)).collect()
    }
}

impl<S: Service> List<S> {
    pub(crate) fn is_current(&self, current: &Current) -> bool {
        self.current.as_ref().is_some_and(|mine| mine.number == current.number)
    }

    fn has(&self, instance: &Arc<Instance<S>>) -> bool {
        self.instances.get(&instance.id).is_some_and(|listed| Arc::ptr_eq(listed, instance))
    }
}
