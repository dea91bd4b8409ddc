//! [`Registry::lead`]: one term of all services.

use crate::{LeadError, Registry, turns::Term};
use futures_util::future::join_all;
use ielections::Standing;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

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
