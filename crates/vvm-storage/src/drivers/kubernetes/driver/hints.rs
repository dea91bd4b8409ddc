//! Hints, by a watch of the Leases of a name.

use super::{
    super::{
        errors::DriverError,
        open::{Change, Watch},
        rows,
    },
    LeaseStorage,
};
use crate::{ClusterName, KEY_PREFIX_SLOT_COUNT, Partition, SysVvmHints};
use async_trait::async_trait;
use std::{future::pending, sync::PoisonError, time::Duration};
use vvm_clock::{Clock as _, Instant};

/// How long to wait before watching again after a failure or an end. Looks go on meanwhile.
const WATCHING_AGAIN: Duration = Duration::from_secs(1);

/// The stream of changes, if there is one.
#[derive(Default)]
pub(super) struct Watched {
    /// The label of the Leases, and their changes.
    pub(super) stream: Option<(String, Watch)>,
    /// When watching may begin again. An instant, so that calls that are dropped don't put it off.
    again_at: Option<Instant>,
}

#[async_trait]
impl SysVvmHints for LeaseStorage {
    /// The API server tells the others by itself.
    async fn announce(&self, _topic: &Partition) {}

    async fn hinted(&self, topic: &Partition) {
        let label = rows::label(topic);
        // Held by the one call that waits. A call that is dropped leaves the stream for the next one.
        let mut watched = self.watched.lock().await;
        let clock = self.connections.clock();
        loop {
            match &mut watched.stream {
                Some((of, watch)) if *of == label => {
                    let Some(change) = watch.next().await else {
                        watched.stream = None;
                        self.listens_to(None);
                        watched.again_at = Some(clock.now().after(WATCHING_AGAIN));
                        return;
                    };
                    if is_hint(&change, topic) {
                        return;
                    }
                }
                _ => match self.watch_again(&label, watched.again_at).await {
                    Ok(watch) => {
                        self.listens_to(Some(label.clone()));
                        watched.stream = Some((label, watch));
                        // What changed before the server watched is not told: a look finds it.
                        return;
                    }
                    Err(DriverError::Closed(_) | DriverError::Denied(_)) => return pending().await,
                    Err(error) => {
                        tracing::debug!(%error, "can't watch");
                        watched.again_at = Some(clock.now().after(WATCHING_AGAIN));
                    }
                },
            }
        }
    }

    fn listens(&self, topic: &Partition) -> bool {
        let of = self.listens_to.lock().unwrap_or_else(PoisonError::into_inner);
        of.as_ref() == Some(&rows::label(topic))
    }
}

impl LeaseStorage {
    fn listens_to(&self, label: Option<String>) {
        *self.listens_to.lock().unwrap_or_else(PoisonError::into_inner) = label;
    }

    async fn watch_again(&self, label: &str, again_at: Option<Instant>) -> Result<Watch, DriverError> {
        if let Some(again_at) = again_at {
            self.connections.clock().sleep_until(again_at).await;
        }
        self.connections.watch(label).await
    }
}

/// Whether a slot became vacant, or a request was made or ended. Renewals and claims are no hints.
fn is_hint(Change { kind, object }: &Change, topic: &Partition) -> bool {
    let is_request = || {
        let name = topic.as_bytes().strip_prefix(&[KEY_PREFIX_SLOT_COUNT]).map(ClusterName::new);
        name.is_some_and(|name| {
            let requests = [name.pause_partition(), name.step_down_partition()];
            requests.iter().any(|request| rows::name(request) == object.name())
        })
    };
    match kind.as_str() {
        // All Leases are told at the beginning. New vacancies are those of a new name.
        "ADDED" => is_request(),
        "MODIFIED" => !object.is_held() || is_request(),
        _ => true,
    }
}
