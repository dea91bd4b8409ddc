//! One service and the task that drives it, from its start to the end of its work.
//!
//! Start and work share one task, so that neither is ever dropped half-way: a VVM that is to stop while a
//! service starts tells it so and waits for it, like for any other (I6).

use crate::{
    BoxError, Failure, Problem, Service, ServiceContext,
    state::State,
    task::{EndedEarly, Joined, caught},
};
use ielections::{Key, Spawn, Standing};
use std::{fmt, sync::Arc};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// A service that was not started yet.
pub(crate) struct Planned<K> {
    name: Arc<str>,
    service: Box<dyn Service<K>>,
}

/// A service whose task runs. Dropping it tells the service to stop.
#[derive(Debug)]
pub(crate) struct Hosted {
    name: Arc<str>,
    stop: CancellationToken,
    ended: Joined<Proof>,
}

/// Whether a service whose task has ended is known to have stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Proof {
    /// It returned: its word that nothing of it runs.
    Stopped,
    /// It panicked, or was dropped, which says nothing about what it had started (I4, I6).
    None,
}

impl<K: Key> Planned<K> {
    pub(crate) fn new(service: Box<dyn Service<K>>) -> Self {
        Self { name: Arc::from(service.name()), service }
    }

    /// Starts the service's task. The receiver hears when the service is ready; it closes when it won't be.
    pub(crate) fn start(
        self,
        slot: K,
        standing: Standing,
        state: Arc<State<K>>,
        spawn: &dyn Spawn,
    ) -> (Hosted, oneshot::Receiver<()>) {
        let Self { name, service } = self;
        let stop = CancellationToken::new();
        let (ready, is_ready) = oneshot::channel();
        let cx = ServiceContext { stop: stop.clone(), slot, standing };
        let course = Course { name: Arc::clone(&name), state, over: false };
        let ended = Joined::spawn(spawn, "vvm service", course.run(service, cx, ready));
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

    pub(crate) fn tell_to_stop(&self) {
        self.stop.cancel();
    }

    /// Waits for the service's task to end.
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting.
    pub(crate) async fn join(&mut self) -> Proof {
        match self.ended.join().await {
            Ok(proof) => proof,
            Err(EndedEarly::Panicked(_) | EndedEarly::Dropped) => Proof::None,
        }
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        self.tell_to_stop();
    }
}

/// A service's course, as its task drives it, and what is reported of it.
struct Course<K: Key> {
    name: Arc<str>,
    state: Arc<State<K>>,
    over: bool,
}

impl<K: Key> Course<K> {
    async fn run(
        mut self,
        service: Box<dyn Service<K>>,
        cx: ServiceContext<K>,
        ready: oneshot::Sender<()>,
    ) -> Proof {
        let proof = self.start_and_work(service, cx, ready).await;
        self.over = true;
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
            Ok(Err(error)) => return self.did_not_start(error),
            Err(panic) => return self.panicked(panic),
        };
        // A launcher that is stopping does not listen any more.
        let _ = ready.send(());
        match caught(work).await {
            Ok(result) => self.ended(result),
            Err(panic) => self.panicked(panic),
        }
    }

    fn did_not_start(&self, error: BoxError) -> Proof {
        let cause = Failure::from(error);
        if self.state.is_stopping() {
            tracing::info!(service = %self.name, %cause, "told to stop while starting");
        } else {
            self.state.report(Problem::StartFailed { service: self.name(), cause });
        }
        Proof::Stopped
    }

    fn ended(&self, result: Result<(), BoxError>) -> Proof {
        let failure = result.err().map(Failure::from);
        match failure {
            failure if !self.state.is_stopping() => {
                self.state.report(Problem::Ended { service: self.name(), failure });
            }
            Some(cause) => self.state.report(Problem::StopFailed { service: self.name(), cause }),
            None => {}
        }
        Proof::Stopped
    }

    fn panicked(&self, panic: Arc<str>) -> Proof {
        self.state.report(Problem::Panicked { service: self.name(), panic });
        Proof::None
    }

    fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }
}

impl<K: Key> Drop for Course<K> {
    fn drop(&mut self) {
        if !self.over {
            self.state.report(Problem::Dropped { service: self.name() });
        }
    }
}

impl<K> fmt::Debug for Planned<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}
