//! [`start`]: runs an instance in a task of its own.

use crate::{
    Outcome, RunContext, Service, StateCell, Task as _, TermInterrupted,
    failure::caught,
    roster::{PlannedInstance, Roster, ServiceTerm},
    state_cell::{CellContext, CellOwner, StoredVersion},
    status::Instance,
};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::watch;

/// An instance in its task. It ends when this is dropped: as interrupted, unless the outcome was set.
struct InstanceGuard<S: Service> {
    roster: Arc<Roster<S>>,
    instance: Arc<Instance<S>>,
    outcome: Outcome,
    /// Dropped last: `Roster::joined` waits until every receiver is dropped.
    _alive: watch::Receiver<()>,
}

struct InstanceOwner<S: Service> {
    roster: Arc<Roster<S>>,
    instance: Arc<Instance<S>>,
}

pub(crate) fn start<S: Service>(roster: &Arc<Roster<S>>, planned: PlannedInstance<S>) {
    let PlannedInstance { term, instance, doc, stored } = planned;
    let (outcome, alive) = (Outcome::Interrupted, roster.runners.subscribe());
    let ending = InstanceGuard { roster: Arc::clone(roster), instance, outcome, _alive: alive };
    roster.config.spawn.spawn("primary-only runner", Box::pin(run(ending, term, doc, stored)));
}

async fn run<S: Service>(
    mut ending: InstanceGuard<S>,
    term: ServiceTerm,
    doc: S::Doc,
    stored: StoredVersion,
) {
    let InstanceGuard { roster, instance, .. } = &ending;
    // An id never runs twice at once, even if the first run has deleted its document already.
    if let Some(predecessor) = roster.predecessor(&instance.id) {
        predecessor.ended().await;
    }
    if term.stop.is_cancelled() {
        return;
    }
    instance.begin();
    let context = CellContext {
        term: Arc::clone(&term.term),
        clock: Arc::clone(&roster.config.clock),
        document: roster.collection.document(&instance.id),
        schema: S::SCHEMA,
        owner: Arc::new(InstanceOwner { roster: Arc::clone(roster), instance: Arc::clone(instance) }),
    };
    let cell = StateCell::new(doc, stored, context);
    let cx = RunContext::new(cell, term.stop.clone(), term.term.standing.clone());
    let ran = caught(instance.task.run(cx)).await;
    if let Some(write) = instance.take_unfinished() {
        write.await;
    }
    let outcome = match ran {
        Ok(Ok(())) => Outcome::Completed,
        Ok(Err(failure)) if term.is_over() || failure.is::<TermInterrupted>() => {
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
    ending.outcome = outcome;
}

impl<S: Service> Drop for InstanceGuard<S> {
    fn drop(&mut self) {
        // It refers to the instance, which has it: a runtime that ends drops the run during a write (I9).
        drop(self.instance.take_unfinished());
        self.roster.end(&self.instance, self.outcome.clone());
    }
}

impl<S: Service> CellOwner for InstanceOwner<S> {
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
