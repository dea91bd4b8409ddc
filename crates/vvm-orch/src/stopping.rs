//! [`Stopping`]: stops the services one after the other, in the reverse order of their start.
//!
//! All services together have `stop_timeout`. After a loss they have until the kill deadline, if that is
//! less.

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
    /// Stops the services. Returns the leadership if all of them are proven to have stopped (I6). Otherwise
    /// drops it, so that the process ends at the kill deadline (I4).
    pub(crate) async fn stop(&self, mut services: Vec<Hosted>, leadership: Leadership) -> Option<Leadership> {
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
                // A renewal may have moved it.
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
