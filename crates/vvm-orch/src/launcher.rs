//! [`Launcher`]: campaigns, starts the monitor, then starts the services one after the other.
//!
//! It ends when the services are ready or the VVM stops, and passes the result to the shutdowner.

use crate::{
    Leading, Problem,
    hosted::{Hosted, Planned},
    state::{EndedEarly, Joined, State},
};
use ielections::{Candidacy, Elections, Key, Leadership, Spawn, Standing};
use std::{future::pending, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use vvm_clock::Clock;

pub(crate) struct Launcher<K: Key> {
    pub(crate) state: Arc<State<K>>,
    pub(crate) elections: Arc<Elections<K>>,
    pub(crate) candidacy: Candidacy<K>,
    pub(crate) services: Vec<Planned<K>>,
    pub(crate) spawn: Arc<dyn Spawn>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) start_timeout: Option<Duration>,
}

/// The parts to stop after a slot was acquired.
#[derive(Debug)]
pub(crate) struct Launched {
    /// In the order of their start. The last one may still be starting, or may have failed to start.
    pub(crate) services: Vec<Hosted>,
    pub(crate) monitor: Monitor,
    pub(crate) leadership: Leadership,
}

impl<K: Key> Launcher<K> {
    pub(crate) const NAME: &str = "vvm launcher";

    pub(crate) async fn run(self) -> Option<Launched> {
        let Self { state, elections, candidacy, services, spawn, clock, start_timeout } = self;
        let acquired = tokio::select! {
            biased;
            // Dropping the acquisition withdraws the candidacy.
            () = state.stopping() => return None,
            acquired = elections.acquire(candidacy) => acquired,
        };
        let (slot, leadership) = match acquired {
            Ok(acquired) => acquired,
            Err(error) => {
                state.report(Problem::NotAcquired(Arc::new(error)));
                return None;
            }
        };
        let standing = leadership.standing().clone();
        let monitor = Monitor::start(standing.clone(), Arc::clone(&state), &*spawn);
        let mut launched = Launched { services: Vec::with_capacity(services.len()), monitor, leadership };
        for service in services {
            if state.is_stopping() {
                return Some(launched);
            }
            let (hosted, ready) = service.start(slot.clone(), standing.clone(), Arc::clone(&state), &*spawn);
            let name = hosted.name();
            launched.services.push(hosted);
            tokio::select! {
                biased;
                () = state.stopping() => {}
                // If it will never be ready, its task has reported why.
                _ = ready => {}
                after = timed_out(&clock, start_timeout) => {
                    // The report stops the VVM, which cancels the service and waits for it.
                    state.report(Problem::StartTimedOut { service: name, after });
                }
            }
        }
        state.services_are_ready(Leading { slot, standing });
        Some(launched)
    }
}

/// Waits until the limit has passed, and returns it. Without a limit it waits for ever.
async fn timed_out(clock: &Arc<dyn Clock>, limit: Option<Duration>) -> Duration {
    match limit {
        Some(limit) => {
            clock.sleep(limit).await;
            limit
        }
        None => pending().await,
    }
}

/// The monitor's task.
#[derive(Debug)]
pub(crate) struct Monitor {
    stop: CancellationToken,
    ended: Joined<()>,
}

impl Monitor {
    pub(crate) const NAME: &str = "vvm leadership monitor";

    pub(crate) fn start<K: Key>(standing: Standing, state: Arc<State<K>>, spawn: &dyn Spawn) -> Self {
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let ended = Joined::spawn(spawn, Self::NAME, async move {
            let loss = tokio::select! {
                biased;
                loss = standing.lost() => loss,
                () = stopping.cancelled() => return,
            };
            state.report(Problem::Lost(loss));
        });
        Self { stop, ended }
    }

    /// Stops the task, and waits for its end. Call it before the release, which the standing counts as a
    /// loss.
    pub(crate) async fn stop(mut self) -> Result<(), EndedEarly> {
        self.stop.cancel();
        self.ended.join().await
    }
}
