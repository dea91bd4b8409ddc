//! Stopping the services: in the reverse order of their start, and in time.
//!
//! One after the other, each told to stop when those that were started after it have ended. All of them
//! together have `stop_timeout`, and after a loss only what is left until the kill deadline.

use crate::{
    Problem,
    hosted::{Hosted, Proof},
    state::State,
};
use futures_util::{FutureExt, future::Shared};
use ielections::{Key, Leadership, Standing, Timing};
use std::{future::pending, sync::Arc, time::Duration};
use vvm_clock::Clock;

pub(crate) struct Stopping<'vvm, K: Key> {
    pub(crate) state: &'vvm State<K>,
    pub(crate) clock: &'vvm Arc<dyn Clock>,
    pub(crate) stop_timeout: Duration,
    pub(crate) timing: Timing,
}

impl<K: Key> Stopping<'_, K> {
    /// Stops the services. Gives the leadership back if all of them are proven to have stopped (I6);
    /// otherwise it is dropped, so that the process ends at the kill deadline (I4).
    pub(crate) async fn stop(&self, mut services: Vec<Hosted>, leadership: Leadership) -> Option<Leadership> {
        let deadline = self.deadline(leadership.standing().clone()).boxed().shared();
        let mut too_late = deadline.clone();
        let mut timeout = self.clock.sleep(self.stop_timeout);
        let mut proof = Proof::Stopped;
        while let Some(mut service) = services.pop() {
            service.tell_to_stop();
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

    /// Resolves when the process is dead, but for a deadman that only records.
    fn deadline(&self, standing: Standing) -> impl Future<Output = ()> + Send + 'static {
        let clock = Arc::clone(self.clock);
        let stopping = self.timing.stopping();
        async move {
            let tightened = async {
                if standing.lost().await.tightens_deadline() {
                    clock.sleep(stopping).await;
                } else {
                    pending().await
                }
            };
            let due = async {
                // Renewals move it.
                while clock.now() < standing.kill_at() {
                    clock.sleep_until(standing.kill_at()).await;
                }
            };
            tokio::select! {
                biased;
                () = tightened => {}
                () = due => {}
            }
        }
    }
}

/// Stops those that are left when one did not stop in time: they have until the process ends.
async fn stop_at_once(mut services: Vec<Hosted>, mut deadline: Shared<impl Future<Output = ()>>) {
    services.iter().rev().for_each(Hosted::tell_to_stop);
    while let Some(mut service) = services.pop() {
        tokio::select! {
            biased;
            _ = service.join() => {}
            () = &mut deadline => return,
        }
    }
}
