//! [`Runner`]: the task that drives instances, one after the other. As many of them as may run at once, and
//! none for those that wait.

use crate::{
    Interrupted, Outcome, RunContext, Service, StateCell, Task,
    failure::caught,
    instance::Instance,
    roster::{Current, Roster},
    state_cell::{Keeper, Place, Stands},
};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::watch;

pub(crate) struct Runner<S: Service> {
    roster: Arc<Roster<S>>,
    retired: bool,
}

/// An instance that was not run yet. Running consumes it: so each is run at most once.
pub(crate) struct Queued<S: Service> {
    current: Current,
    doc: S::Doc,
    stands: Stands,
    ending: Ending<S>,
}

/// Sees to it that an instance ends on every path: where nothing else was said, it was interrupted.
struct Ending<S: Service> {
    roster: Arc<Roster<S>>,
    instance: Arc<Instance<S>>,
    outcome: Outcome,
}

/// The service, as an instance's cell sees it.
struct Kept<S: Service> {
    roster: Arc<Roster<S>>,
    instance: Arc<Instance<S>>,
}

impl<S: Service> Runner<S> {
    pub(crate) const NAME: &'static str = "primary-only runner";

    pub(crate) fn start(roster: Arc<Roster<S>>, in_crew: watch::Receiver<()>) {
        let spawn = Arc::clone(&roster.config.spawn);
        let runner = Self { roster, retired: false };
        let work = async move {
            runner.work().await;
            drop(in_crew);
        };
        // Joined by the crew, whose receiver goes when the task ends, or is dropped.
        spawn.spawn(Self::NAME, Box::pin(work));
    }

    async fn work(mut self) {
        while let Some(queued) = self.roster.next_queued() {
            queued.run().await;
        }
        self.retired = true;
    }
}

impl<S: Service> Drop for Runner<S> {
    fn drop(&mut self) {
        if !self.retired {
            self.roster.lost_a_runner();
        }
    }
}

impl<S: Service> Queued<S> {
    pub(crate) fn new(
        roster: &Arc<Roster<S>>,
        current: &Current,
        instance: Instance<S>,
        doc: S::Doc,
        stands: Stands,
    ) -> Self {
        let (roster, instance) = (Arc::clone(roster), Arc::new(instance));
        let ending = Ending { roster, instance, outcome: Outcome::Interrupted };
        Self { current: current.clone(), doc, stands, ending }
    }

    pub(crate) fn instance(&self) -> &Arc<Instance<S>> {
        &self.ending.instance
    }

    async fn run(self) {
        let Self { current, doc, stands, mut ending } = self;
        let (roster, instance) = (Arc::clone(&ending.roster), Arc::clone(&ending.instance));
        // Never two of one id at once, not even while the first is only tidying up after itself.
        if let Some(predecessor) = roster.predecessor(&instance.id) {
            predecessor.ended().await;
        }
        if current.stop.is_cancelled() {
            return;
        }
        instance.begin();
        let place = Place {
            term: Arc::clone(&current.term),
            clock: Arc::clone(&roster.config.clock),
            document: roster.collection.document(&instance.id),
            schema: S::SCHEMA,
            keeper: Arc::new(Kept { roster, instance: Arc::clone(&instance) }),
        };
        let cell = StateCell::new(doc, stands, place);
        let cx = RunContext::new(cell, current.stop.clone(), current.term.standing.clone());
        let ran = caught(instance.task.run(cx)).await;
        if let Some(finish) = instance.take_left_behind() {
            finish.await;
        }
        ending.outcome = match ran {
            Ok(Ok(())) => Outcome::Completed,
            Ok(Err(failure)) if current.is_over() || failure.is::<Interrupted>() => {
                tracing::debug!(service = S::NAME, id = %instance.id, %failure, "interrupted");
                Outcome::Interrupted
            }
            Ok(Err(failure)) => {
                tracing::warn!(service = S::NAME, id = %instance.id, %failure, "the instance failed");
                Outcome::Failed(failure.into())
            }
            Err(panic) => {
                tracing::error!(service = S::NAME, id = %instance.id, panic = %panic.0, "the instance panicked");
                Outcome::Panicked(panic.0)
            }
        };
    }
}

impl<S: Service> Drop for Ending<S> {
    fn drop(&mut self) {
        // Forgotten first: who has heard of the end must not find the instance any more.
        self.roster.forget(&self.instance);
        self.instance.end(self.outcome.clone());
    }
}

impl<S: Service> Keeper for Kept<S> {
    fn persisted(&self) {
        self.instance.persist();
    }

    fn released(&self) {
        self.roster.release(&self.instance);
    }

    fn left_behind(&self, write: BoxFuture<'static, ()>) {
        self.instance.leave_behind(write);
    }
}
