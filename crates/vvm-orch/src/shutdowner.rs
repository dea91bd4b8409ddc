//! [`Shutdowner`]: the VVM's task. It runs the launcher, waits until the VVM stops or loses its leadership, and stops
//! its parts in the reverse order of their start: services, leadership, elections.

use crate::{
    Problem,
    launcher::{Hosted, LaunchedServices, Launcher, Proof},
    state::VvmState,
};
use futures_util::{FutureExt, future::Shared};
use ielections::{Elections, Key, Leadership, Loss, ReleaseOutcome, Standing, env};
use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};
use vvm_clock::Clock;

pub(crate) struct Shutdowner<K: Key> {
    pub(crate) state: Arc<VvmState<K>>,
    pub(crate) elections: Arc<Elections<K>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) stop_timeout: Duration,
}

impl<K: Key> Shutdowner<K> {
    /// Ends the waits for the shutdown even if the future is dropped before its first poll.
    pub(crate) fn run(self, launcher: Launcher<K>) -> impl Future<Output = ()> + Send + 'static {
        let mut completion = Completion { state: Arc::clone(&self.state), ended: Err(None) };
        async move { completion.note(env::caught(self.shut_down(launcher)).await) }
    }

    async fn shut_down(self, launcher: Launcher<K>) {
        match env::caught(launcher.run()).await {
            Ok(Some(launched)) => self.stop(launched).await,
            Ok(None) => {}
            Err(panic) => self.state.report(Problem::Broken { panic: Some(panic) }),
        }
        // The engine's task must end, too (I9).
        self.elections.cleanup().await;
    }

    async fn stop(&self, launched: LaunchedServices) {
        let LaunchedServices { services, leadership } = launched;
        let standing = leadership.standing().clone();
        let stopped = async {
            self.state.stopping().await;
            // Renewals continue meanwhile.
            self.stop_services(services, leadership).await
        };
        let lost = async {
            self.state.report(Problem::Lost(standing.lost().await));
            pending::<Infallible>().await
        };
        let leadership = tokio::select! {
            biased;
            never = lost => match never {},
            // From here on the release counts as a loss, too.
            leadership = stopped => leadership,
        };
        if let Some(leadership) = leadership {
            let epoch = leadership.epoch();
            let outcome = leadership.release().await;
            match outcome {
                ReleaseOutcome::LeftToExpire => {
                    tracing::warn!(%epoch, "the storage confirmed no release, so the record stands for its TTL");
                }
                outcome => tracing::info!(%epoch, "the leadership was handed back: {outcome}"),
            }
            if outcome == ReleaseOutcome::StillArmed {
                // It is reported already, unless the engine has ended since the services have stopped.
                self.state.report(Problem::Lost(Loss::EngineEnded));
            }
        }
    }

    /// Stops the services. Returns the leadership if all of them are proven to have stopped (I6). Otherwise
    /// drops it, so that the process ends at the kill deadline (I4).
    async fn stop_services(&self, mut services: Vec<Hosted>, leadership: Leadership) -> Option<Leadership> {
        let deadline = self.deadline(leadership.standing().clone()).boxed().shared();
        let mut too_late = deadline.clone();
        let mut timeout = self.clock.sleep(self.stop_timeout);
        let mut proof = Proof::Stopped;
        while let Some(mut service) = services.pop() {
            service.stop();
            let ended = tokio::select! {
                biased;
                ended = service.join() => Some(ended),
                () = &mut too_late => None,
                () = &mut timeout => None,
            };
            match ended {
                Some(ended) => proof = proof.and(ended),
                None => {
                    self.state.report(Problem::WontStop { service: service.name() });
                    drop(leadership);
                    stop_at_once(services, deadline).await;
                    return None;
                }
            }
        }
        (proof == Proof::Stopped).then_some(leadership)
    }

    /// Waits until the kill deadline. It resolves only in tests, where the deadman does not kill.
    fn deadline(&self, standing: Standing) -> impl Future<Output = ()> + Send + 'static {
        let clock = Arc::clone(&self.clock);
        async move {
            // A renewal may have moved it, and a loss may bring it forward.
            let due = async || {
                while clock.now() < standing.kill_at() {
                    clock.sleep_until(standing.kill_at()).await;
                }
            };
            tokio::select! {
                biased;
                _ = standing.lost() => due().await,
                () = due() => {}
            }
        }
    }
}

/// Stops the services that are left after one did not stop in time. They have until the kill deadline.
async fn stop_at_once(mut services: Vec<Hosted>, mut deadline: Shared<impl Future<Output = ()>>) {
    services.iter().rev().for_each(Hosted::stop);
    while let Some(mut service) = services.pop() {
        tokio::select! {
            biased;
            _ = service.join() => {}
            () = &mut deadline => return,
        }
    }
}

/// Ends the waits for the shutdown, even if its task panics or is dropped (I10).
struct Completion<K: Key> {
    state: Arc<VvmState<K>>,
    /// An error has the message of a panic; none if the runtime dropped the task.
    ended: Result<(), Option<Arc<str>>>,
}

impl<K: Key> Completion<K> {
    fn note(&mut self, ended: Result<(), Arc<str>>) {
        self.ended = ended.map_err(Some);
    }
}

impl<K: Key> Drop for Completion<K> {
    fn drop(&mut self) {
        if let Err(panic) = &self.ended {
            self.state.report(Problem::Broken { panic: panic.clone() });
        }
        self.state.has_stopped();
    }
}
