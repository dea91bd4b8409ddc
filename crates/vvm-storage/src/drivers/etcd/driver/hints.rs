//! Hints, by watches of etcd: a release and a request are changes of keys, and announce themselves.

use super::{
    super::{errors::DriverError, open::Watch},
    EtcdStorage,
};
use crate::{key::Partition, sysvvm::SysVvmHints};
use async_trait::async_trait;
use std::{
    collections::HashMap,
    future::pending,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How long to wait before watching again after a failure. Looks go on meanwhile.
const WATCHING_AGAIN: Duration = Duration::from_secs(1);

/// The watch of one topic.
#[derive(Default, Debug)]
struct Place {
    /// `None` before the first, and after one has ended. Held by the one call that waits.
    watch: tokio::sync::Mutex<Option<Watch>>,
    /// Whether there is one.
    lives: AtomicBool,
}

/// The watches of a handle.
#[derive(Default, Debug)]
pub(super) struct Watches(Mutex<HashMap<Partition, Arc<Place>>>);

impl Watches {
    fn of(&self, topic: &Partition) -> Arc<Place> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(places.entry(topic.clone()).or_default())
    }

    /// Ends the watches for which no caller waits.
    pub(super) fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[async_trait]
impl SysVvmHints for EtcdStorage {
    async fn announce(&self, _topic: &Partition) {}

    async fn hinted(&self, topic: &Partition) {
        let ranges = self.keyspace.watched(topic);
        if ranges.is_empty() {
            return pending().await;
        }
        let place = self.watches.of(topic);
        let mut watch = place.watch.lock().await;
        loop {
            let Some(live) = &mut *watch else {
                match self.connections.watch(ranges.clone()).await {
                    Ok(live) => {
                        *watch = Some(live);
                        place.lives.store(true, Ordering::Relaxed);
                        // What came before the member watched is not told: a look finds it.
                        return;
                    }
                    Err(DriverError::Closed(_)) => return pending().await,
                    Err(error) => {
                        tracing::debug!(%error, "can't watch");
                        self.connections.pause(WATCHING_AGAIN).await;
                        continue;
                    }
                }
            };
            match live.next().await {
                Ok(answer) if answer.canceled => {}
                Ok(answer) if answer.events.iter().any(|event| self.keyspace.is_hint(topic, event)) => return,
                Ok(_) => continue,
                Err(error) => tracing::debug!(%error, "the watch has ended"),
            }
            *watch = None;
            place.lives.store(false, Ordering::Relaxed);
            return;
        }
    }

    fn listens(&self, topic: &Partition) -> bool {
        self.watches.of(topic).lives.load(Ordering::Relaxed)
    }
}
