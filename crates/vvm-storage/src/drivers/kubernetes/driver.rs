//! The verbs of cells: each is one request, sent once. Hints by a watch of the Leases of a name.

use super::{
    cluster::Address,
    connections::{Change, Connections, Watch},
    errors::DriverError,
    names, open,
    rows::Lease,
};
use crate::{
    cells::{Cell, CellLimits, CellStorage, CellWrite, Expected},
    key::{ClusterName, KEY_PREFIX_SLOT_COUNT, Partition},
    open_error::OpenError,
    sysvvm::{Description, Opened, Provenance, SysVvmHints},
};
use async_trait::async_trait;
use bytes::Bytes;
use ielections::{Entry, ReadError, WriteError};
use std::{
    fmt,
    future::pending,
    sync::{self, PoisonError},
    time::Duration,
};
use tokio::sync::Mutex;
use vvm_clock::{Clock as _, Instant, SystemWallClock, WallClock as _};

/// The Leases of a namespace, as cells. [`Cells`](crate::cells::Cells) makes elections of them.
pub struct LeaseStorage {
    connections: Connections,
    watched: Mutex<Watched>,
    /// The label of the stream, which a call that waits keeps locked.
    listens_to: sync::Mutex<Option<String>>,
}

impl LeaseStorage {
    /// Opens the namespace that `url` names. Creates nothing.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let connections = open::open(&Address::parse(url)?).await?;
        Ok(Self { connections, watched: Mutex::default(), listens_to: sync::Mutex::default() })
    }

    async fn cell(&self, key: &Partition, may_be_stale: bool) -> Result<Option<Cell>, ReadError> {
        let lease = self.connections.get(&names::name(key), may_be_stale).await;
        let cell = lease.and_then(|lease| Ok(lease.map(|lease| lease.cell(key)).transpose()?));
        cell.map_err(DriverError::of_read)
    }

    async fn set(
        &self,
        key: &Partition,
        value: &Bytes,
        record: Option<&Entry>,
        expected: Expected,
    ) -> Result<CellWrite, DriverError> {
        let now = SystemWallClock.since_unix_epoch();
        let written = match expected {
            Expected::Absent => {
                let lease = Lease::new(key, self.connections.namespace()).set(key, value, record, now);
                self.connections.create(&lease).await?
            }
            Expected::Tag(tag) => {
                let seen = Lease::of_tag(&tag)?;
                let written = self.connections.replace(&seen.clone().set(key, value, record, now)).await?;
                if written.is_none() && seen.is_held() {
                    self.is_still_there(&seen).await?;
                }
                written
            }
        };
        Ok(written.map_or(CellWrite::Refused, |lease| CellWrite::Written(Some(lease.into_tag()))))
    }

    /// (I1) A held Lease that was deleted may have had a leader at work beside the one that replaced it.
    async fn is_still_there(&self, seen: &Lease) -> Result<(), DriverError> {
        match self.connections.get(seen.name(), false).await {
            Ok(Some(lease)) if lease.is_same_object(seen) => Ok(()),
            Ok(_) => Err(DriverError::Gone(seen.name().to_owned())),
            // The write was refused all the same, and the caller reads again.
            Err(_) => Ok(()),
        }
    }
}

#[async_trait]
impl CellStorage for LeaseStorage {
    fn limits(&self) -> CellLimits {
        CellLimits {
            // An attempt may take a tenth of it: enough for a write and for a new connection.
            min_ttl: Duration::from_secs(2),
            max_key_bytes: 2048,
            // Annotations may have 256 KiB, of which base64 takes a quarter. Some are for those of others.
            max_cell_bytes: 176 << 10,
        }
    }

    fn shared_between_processes(&self) -> bool {
        true
    }

    async fn read(&self, key: &Partition) -> Result<Option<Cell>, ReadError> {
        self.cell(key, false).await
    }

    async fn peek(&self, key: &Partition) -> Result<Option<Cell>, ReadError> {
        self.cell(key, true).await
    }

    async fn write(
        &self,
        key: &Partition,
        value: Bytes,
        expected: Expected,
    ) -> Result<CellWrite, WriteError> {
        self.write_slot(key, value, None, expected).await
    }

    async fn write_slot(
        &self,
        key: &Partition,
        value: Bytes,
        record: Option<&Entry>,
        expected: Expected,
    ) -> Result<CellWrite, WriteError> {
        self.set(key, &value, record, expected).await.map_err(DriverError::of_write)
    }

    fn hints(&self) -> Option<&dyn SysVvmHints> {
        Some(self)
    }

    fn opened(&self) -> Option<Opened> {
        let Self { connections, .. } = self;
        let location = format!("namespace {} of {}", connections.namespace(), connections.server());
        Some(Opened::at(location, Provenance::Existing))
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        describe(&self.connections).await.map_err(DriverError::of_read)
    }

    async fn close(&self) {
        self.connections.close();
        // A call that waits keeps its stream until it is dropped.
        if let Ok(mut watched) = self.watched.try_lock() {
            watched.stream = None;
        }
    }
}

impl fmt::Debug for LeaseStorage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "LeaseStorage({:?})", self.connections)
    }
}

/// How long to wait before watching again after a failure or an end. Looks go on meanwhile.
const WATCHING_AGAIN: Duration = Duration::from_secs(1);

/// The stream of changes, if there is one.
#[derive(Default)]
struct Watched {
    /// The label of the Leases, and their changes.
    stream: Option<(String, Watch)>,
    /// When watching may begin again. An instant, so that calls that are dropped don't put it off.
    again_at: Option<Instant>,
}

#[async_trait]
impl SysVvmHints for LeaseStorage {
    /// The API server tells the others by itself.
    async fn announce(&self, _topic: &Partition) {}

    async fn hinted(&self, topic: &Partition) {
        let label = names::label(topic);
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
        of.as_ref() == Some(&names::label(topic))
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
            requests.iter().any(|request| names::name(request) == object.name())
        })
    };
    match kind.as_str() {
        // All Leases are told at the beginning. New vacancies are those of a new name.
        "ADDED" => is_request(),
        "MODIFIED" => !object.is_held() || is_request(),
        _ => true,
    }
}

async fn describe(connections: &Connections) -> Result<Description, DriverError> {
    let description = Description::of(format!("Kubernetes {}", open::version(connections).await?))
        .with("server", connections.server())
        .with("namespace", connections.namespace())
        .with("credentials", connections.credentials());
    let missing = open::missing_rights(connections).await?;
    if missing.is_empty() {
        return Ok(description);
    }
    Ok(description.concerned(format!(
        "no Role allows us to {} leases of coordination.k8s.io in namespace {}: apply \
         packaging/kubernetes/base/rbac.yaml",
        missing.join(", "),
        connections.namespace()
    )))
}
