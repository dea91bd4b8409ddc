//! [`Runner`]: a task that runs queued instances, one after the other.

use crate::{
    Interrupted, Outcome, RunContext, Service, StateCell, Task,
    failure::caught,
    instance::Instance,
    roster::{Queued, Roster},
    state_cell::{CellOwner, Place},
};
use futures_util::future::BoxFuture;
use std::sync::Arc;

pub(crate) struct Runner<S: Service> {
    roster: Arc<Roster<S>>,
    queue_empty: bool,
}

/// An instance that ends when this is dropped: as interrupted, unless the outcome was set.
struct Ending<'run, S: Service> {
    roster: &'run Roster<S>,
    instance: &'run Arc<Instance<S>>,
    outcome: Outcome,
}

/// The owner of an instance's cell.
struct InstanceCell<S: Service> {
    roster: Arc<Roster<S>>,
    instance: Arc<Instance<S>>,
}

impl<S: Service> Runner<S> {
    pub(crate) const NAME: &'static str = "primary-only runner";

    /// Starts runners that [`Roster::admit`] has counted.
    pub(crate) fn start(roster: &Arc<Roster<S>>, number: usize) {
        for _ in 0..number {
            // `Roster::joined` waits until every receiver is dropped.
            let alive = roster.runners.subscribe();
            let runner = Self { roster: Arc::clone(roster), queue_empty: false };
            let work = async move {
                runner.work().await;
                drop(alive);
            };
            roster.config.spawn.spawn(Self::NAME, Box::pin(work));
        }
    }

    async fn work(mut self) {
        while let Some(queued) = self.roster.next_queued() {
            run(&self.roster, queued).await;
        }
        self.queue_empty = true;
    }
}

impl<S: Service> Drop for Runner<S> {
    fn drop(&mut self) {
        if !self.queue_empty {
            self.roster.lost_a_runner();
        }
    }
}

async fn run<S: Service>(roster: &Arc<Roster<S>>, queued: Queued<S>) {
    let Queued { term, instance, doc, stored } = queued;
    let mut ending = Ending { roster, instance: &instance, outcome: Outcome::Interrupted };
    // An id never runs twice at once, even if the first run has deleted its document already.
    if let Some(predecessor) = roster.predecessor(&instance.id) {
        predecessor.ended().await;
    }
    if term.stop.is_cancelled() {
        return;
    }
    instance.begin();
    let place = Place {
        term: Arc::clone(&term.term),
        clock: Arc::clone(&roster.config.clock),
        document: roster.collection.document(&instance.id),
        schema: S::SCHEMA,
        owner: Arc::new(InstanceCell { roster: Arc::clone(roster), instance: Arc::clone(&instance) }),
    };
    let cell = StateCell::new(doc, stored, place);
    let cx = RunContext::new(cell, term.stop.clone(), term.term.standing.clone());
    let ran = caught(instance.task.run(cx)).await;
    if let Some(write) = instance.take_unfinished() {
        write.await;
    }
    ending.outcome = match ran {
        Ok(Ok(())) => Outcome::Completed,
        Ok(Err(failure)) if term.is_over() || failure.is::<Interrupted>() => {
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

impl<S: Service> Drop for Ending<'_, S> {
    fn drop(&mut self) {
        self.roster.end(self.instance, self.outcome.clone());
    }
}

impl<S: Service> CellOwner for InstanceCell<S> {
    fn persisted(&self) {
        self.instance.persist();
    }

    fn deleted(&self) {
        self.roster.depart(&self.instance);
    }

    fn dropped_during(&self, write: BoxFuture<'static, ()>) {
        self.instance.set_unfinished(write);
    }
}
