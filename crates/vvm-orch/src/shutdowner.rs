//! [`Shutdowner`]: waits until the VVM stops, and stops its parts in the reverse order of their start:
//! launcher, services, monitor, leadership, elections.

use crate::{
    Problem,
    launcher::{Launched, Launcher},
    monitor::Monitor,
    state::State,
    stopping::Stopping,
    task::{EndedEarly, Joined, caught},
};
use ielections::{Elections, Key, Loss, ReleaseOutcome, Timing};
use std::{sync::Arc, time::Duration};
use vvm_clock::Clock;

pub(crate) struct Shutdowner<K: Key> {
    pub(crate) state: Arc<State<K>>,
    pub(crate) launched: Joined<Option<Launched>>,
    pub(crate) elections: Arc<Elections<K>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) stop_timeout: Duration,
    pub(crate) timing: Timing,
}

impl<K: Key> Shutdowner<K> {
    pub(crate) const NAME: &str = "vvm shutdowner";

    /// Ends the waits for the shutdown even if the future is dropped before its first poll.
    pub(crate) fn run(self) -> impl Future<Output = ()> + Send + 'static {
        let mut completion = Completion { state: Arc::clone(&self.state), ended: Err(EndedEarly::Dropped) };
        async move { completion.note(caught(self.shut_down()).await) }
    }

    async fn shut_down(mut self) {
        // The launcher ends when the services are ready or the VVM stops.
        match self.launched.join().await {
            Ok(Some(launched)) => self.stop(launched).await,
            Ok(None) => {}
            Err(early) => self.state.report(Problem::broken(Launcher::<K>::NAME, early)),
        }
        // The engine's task must end, too (I9).
        self.elections.cleanup().await;
    }

    async fn stop(&self, launched: Launched) {
        self.state.stopping().await;
        let Launched { services, monitor, leadership } = launched;
        let stopping = Stopping {
            state: &self.state,
            clock: &self.clock,
            stop_timeout: self.stop_timeout,
            timing: self.timing,
        };
        // Renewals continue meanwhile.
        let leadership = stopping.stop(services, leadership).await;
        if let Err(early) = monitor.stop().await {
            self.state.report(Problem::broken(Monitor::NAME, early));
        }
        if let Some(leadership) = leadership {
            let epoch = leadership.epoch();
            let outcome = leadership.release().await;
            tracing::info!(%epoch, %outcome, "the leadership was released");
            if outcome == ReleaseOutcome::StillArmed {
                // The monitor reported it already, unless the engine ended after the monitor.
                self.state.report(Problem::Lost(Loss::EngineEnded));
            }
        }
    }
}

/// Ends the waits for the shutdown, even if its task panics or is dropped (I10).
struct Completion<K: Key> {
    state: Arc<State<K>>,
    ended: Result<(), EndedEarly>,
}

impl<K: Key> Completion<K> {
    fn note(&mut self, ended: Result<(), Arc<str>>) {
        self.ended = ended.map_err(EndedEarly::Panicked);
    }
}

impl<K: Key> Drop for Completion<K> {
    fn drop(&mut self) {
        if let Err(early) = &self.ended {
            self.state.report(Problem::broken(Shutdowner::<K>::NAME, early.clone()));
        }
        self.state.has_stopped();
    }
}
