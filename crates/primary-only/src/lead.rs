//! [`Registry::lead`]: one term of all services, from the step-up to the end of the last instance.

use crate::{Deposed, Registry, term::Term};
use futures_util::future::join_all;
use ielections::{Incarnation, Standing};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// A term did not begin, or ended by itself. Nothing of it runs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeadError {
    /// Somebody else leads. Shut down, and campaign again.
    #[error(transparent)]
    Deposed(#[from] Deposed),
    /// The storage of this election has no fenced documents.
    #[error("the storage of this election has no fenced documents: choose another driver")]
    NoDocuments,
    /// The services run under a leadership already. A process that leads several slots at once needs a
    /// registry for each.
    #[error("the services run under another leadership already")]
    Leading,
    /// The services ran under this very leadership before: a term has one beginning.
    #[error("the services ran under this leadership before")]
    SameTerm,
}

/// Whose turn it is: one leadership at a time, none twice.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<Past>);

#[derive(Debug, Default)]
struct Past {
    leading: bool,
    last: Option<Incarnation>,
}

impl Registry {
    /// Leads: steps all services up, waits for `stop` while they run, steps them down, and returns when none
    /// of their instances is left, so that the leadership may be handed back then (I6).
    ///
    /// It is a service's work in a VVM:
    ///
    /// ```
    /// # use {ielections::Key, primary_only::Registry, vvm_orch::{Service, service_fn}};
    /// fn primary_only<K: Key>(registry: Registry) -> Box<dyn Service<K>> {
    ///     service_fn("primary-only", async move |cx| Ok(registry.lead(cx.standing, cx.stop).await?))
    /// }
    /// ```
    ///
    /// An instance that does not end makes it wait for ever, with the deadman behind it: returning would give
    /// a word that is not true. After [`RegistryConfig::join_timeout`](crate::RegistryConfig) those instances
    /// are named in the log.
    ///
    /// # Errors
    /// [`LeadError`]. When it returns one, nothing runs either.
    ///
    /// # Cancel safety
    /// Dropping it interrupts the instances and doesn't wait for them, which proves nothing: don't hand back
    /// then. The next term waits for them.
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
        // A rebuild is not dropped when the term ends: it notices, and what it waits for may be a service's
        // own code.
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
            let at_work: Vec<_> = self.services.iter().flat_map(|service| service.at_work()).collect();
            tracing::error!(?at_work, "instances do not end; the leadership can't be handed back");
            joined.await;
        }
        self.services.iter().for_each(|service| service.clear());
    }
}

/// Steps all services down when it is dropped.
struct StepDown<'term> {
    registry: &'term Registry,
    term: &'term Term,
}

impl Drop for StepDown<'_> {
    fn drop(&mut self) {
        self.term.stop.cancel();
        self.registry.services.iter().for_each(|service| service.step_down());
    }
}

/// Ends the turn when it is dropped.
struct Turn<'turns>(&'turns Turns);

impl Turns {
    fn take(&self, standing: &Standing) -> Result<Turn<'_>, LeadError> {
        let mut past = self.past();
        if past.leading {
            return Err(LeadError::Leading);
        }
        let incarnation = standing.incarnation();
        if past.last == Some(incarnation) {
            return Err(LeadError::SameTerm);
        }
        *past = Past { leading: true, last: Some(incarnation) };
        Ok(Turn(self))
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.past().leading = false;
    }
}
