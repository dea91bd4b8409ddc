//! [`Launcher`]: campaigns, then starts the services one by one. It ends when the services are ready, the leadership is
//! lost or the VVM stops. The shutdowner follows in the same task. Start and work of a service share one task, so
//! neither is dropped half-way. If the VVM stops while a service starts, it cancels the start and waits for it (I6).

use crate::{BoxError, Failure, Problem, Service, ServiceContext, VvmLeadership, state::VvmState};
use ielections::{
    Candidacy, Elections, Key, Leadership, Spawn, Standing, env::caught, successor::SuccessorTerms,
};
use std::{fmt, future::poll_fn, mem, sync::Arc, task::Poll};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

pub(crate) struct Launcher<K: Key> {
    pub(crate) state: Arc<VvmState<K>>,
    pub(crate) elections: Arc<Elections<K>>,
    pub(crate) candidacy: Candidacy<K>,
    pub(crate) successor: Option<SuccessorTerms<K>>,
    pub(crate) services: Vec<PlannedService<K>>,
    pub(crate) spawn: Arc<dyn Spawn>,
}

#[derive(Debug)]
pub(crate) struct LaunchedServices {
    /// In the order of their start. The last one may still be starting, or may have failed to start.
    pub(crate) services: Vec<Hosted>,
    pub(crate) leadership: Leadership,
}

impl<K: Key> Launcher<K> {
    pub(crate) async fn run(self) -> Option<LaunchedServices> {
        let Self { state, elections, candidacy, successor, services, spawn } = self;
        let acquiring = async {
            match successor {
                Some(terms) => elections.acquire_with_successor(candidacy, terms).await,
                None => elections.acquire(candidacy).await,
            }
        };
        let acquired = tokio::select! {
            biased;
            // Dropping the acquisition withdraws the candidacy.
            () = state.stopping() => return None,
            acquired = acquiring => acquired,
        };
        let (slot, leadership) = match acquired {
            Ok(acquired) => acquired,
            Err(error) => {
                state.report(Problem::NotAcquired(Arc::new(error)));
                return None;
            }
        };
        let standing = leadership.standing().clone();
        let mut launched = LaunchedServices { services: Vec::with_capacity(services.len()), leadership };
        for service in services {
            if state.is_stopping() {
                return Some(launched);
            }
            let (hosted, ready) = service.start(slot.clone(), standing.clone(), Arc::clone(&state), &*spawn);
            launched.services.push(hosted);
            tokio::select! {
                biased;
                () = state.stopping() => {}
                // The shutdowner reports it.
                _ = standing.lost() => return Some(launched),
                // If it will never be ready, its task has reported why.
                _ = ready => {}
            }
        }
        state.services_are_ready(VvmLeadership { slot, standing });
        Some(launched)
    }
}

pub(crate) struct PlannedService<K> {
    name: Arc<str>,
    service: Box<dyn Service<K>>,
}

/// A service with a running task. Dropping it cancels the service.
#[derive(Debug)]
pub(crate) struct Hosted {
    name: Arc<str>,
    stop: CancellationToken,
    ended: oneshot::Receiver<Proof>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Proof {
    Stopped,
    /// The service panicked or was dropped. Work that it had started may still run (I4, I6).
    None,
}

impl<K: Key> PlannedService<K> {
    pub(crate) fn new(service: Box<dyn Service<K>>) -> Self {
        Self { name: Arc::from(service.name()), service }
    }

    /// Starts the service's task. The receiver resolves when the service is ready, or never will be.
    pub(crate) fn start(
        self,
        slot: K,
        standing: Standing,
        state: Arc<VvmState<K>>,
        spawn: &dyn Spawn,
    ) -> (Hosted, oneshot::Receiver<()>) {
        let Self { name, service } = self;
        let stop = CancellationToken::new();
        let (ready, is_ready) = oneshot::channel();
        let cx = ServiceContext { stop: stop.clone(), slot, standing };
        let run = ServiceRun { name: Arc::clone(&name), state, standing: cx.standing.clone(), ended: false };
        let (sender, ended) = oneshot::channel();
        let task = async move {
            // The receiver may be gone.
            let _ = sender.send(run.run(service, cx, ready).await);
        };
        spawn.spawn("vvm service", Box::pin(task));
        (Hosted { name, stop, ended }, is_ready)
    }
}

impl Proof {
    pub(crate) fn and(self, other: Self) -> Self {
        if self == Self::Stopped { other } else { self }
    }
}

impl Hosted {
    pub(crate) fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits for the end of the service's task. It may be dropped and called again until it has returned.
    pub(crate) async fn join(&mut self) -> Proof {
        // Dropped with its task.
        (&mut self.ended).await.unwrap_or(Proof::None)
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        self.stop();
    }
}

struct ServiceRun<K: Key> {
    name: Arc<str>,
    state: Arc<VvmState<K>>,
    standing: Standing,
    ended: bool,
}

impl<K: Key> ServiceRun<K> {
    async fn run(
        mut self,
        service: Box<dyn Service<K>>,
        cx: ServiceContext<K>,
        ready: oneshot::Sender<()>,
    ) -> Proof {
        let proof = self.start_and_work(service, cx, ready).await;
        self.ended = true;
        proof
    }

    async fn start_and_work(
        &self,
        service: Box<dyn Service<K>>,
        cx: ServiceContext<K>,
        ready: oneshot::Sender<()>,
    ) -> Proof {
        let work = match caught(async move { service.start(cx).await }).await {
            Ok(Ok(work)) => work,
            Ok(Err(error)) => return self.start_failed(error),
            Err(panic) => return self.panicked(panic),
        };
        // A stopping launcher has dropped the receiver.
        let _ = ready.send(());
        // It wakes the launcher, which may have to run on this thread: work that blocks must not come first.
        yield_now().await;
        match caught(work).await {
            Ok(result) => self.work_ended(result),
            Err(panic) => self.panicked(panic),
        }
    }

    fn start_failed(&self, error: BoxError) -> Proof {
        let cause = Failure::from(error);
        self.report_loss();
        if self.state.is_stopping() {
            tracing::info!(service = %self.name, %cause, "the start was cancelled because the VVM stops");
        } else {
            self.state.report(Problem::StartFailed { service: self.name(), cause });
        }
        Proof::Stopped
    }

    fn work_ended(&self, result: Result<(), BoxError>) -> Proof {
        let failure = result.err().map(Failure::from);
        self.report_loss();
        match failure {
            failure if !self.state.is_stopping() => {
                self.state.report(Problem::Ended { service: self.name(), failure });
            }
            Some(cause) => self.state.report(Problem::StopFailed { service: self.name(), cause }),
            None => {}
        }
        Proof::Stopped
    }

    /// A service may notice the loss before the shutdowner does. Its end is then no problem of its own.
    fn report_loss(&self) {
        if !self.state.is_stopping()
            && let Some(loss) = self.standing.loss()
        {
            self.state.report(Problem::Lost(loss.clone()));
        }
    }

    fn panicked(&self, panic: Arc<str>) -> Proof {
        self.state.report(Problem::Panicked { service: self.name(), panic });
        Proof::None
    }

    fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }
}

async fn yield_now() {
    let mut is_first = true;
    poll_fn(|cx| {
        cx.waker().wake_by_ref();
        if mem::replace(&mut is_first, false) { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

impl<K: Key> Drop for ServiceRun<K> {
    fn drop(&mut self) {
        if !self.ended {
            self.state.report(Problem::Dropped { service: self.name() });
        }
    }
}

impl<K> fmt::Debug for PlannedService<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}
