//! Driver `kubernetes`: Leases in a namespace. docs/storages/kubernetes.md has login, options, rights, costs and traps.
//!
//! **How the contract is kept.** One Lease (`coordination.k8s.io/v1`) for each slot, setting and request, as a cell of
//! [`Cells`](crate::cells::Cells). A claim, a renewal, a release or a batch is one request: POST creates a Lease that
//! does not exist, PUT replaces exactly the `resourceVersion` and `uid` that were seen. A read is a GET without
//! `resourceVersion`, which the quorum of etcd answers; `peek` says `resourceVersion=0`, so the API server answers from
//! memory. Nothing is sent twice. No age is proven.
//!
//! **What a Lease shows.** `kubectl get lease` and client-go see the truth:
//!
//! | field | value |
//! |---|---|
//! | `holderIdentity` | the holder, `""` when vacant |
//! | `leaseDurationSeconds` | the TTL, rounded up; 1 after a release |
//! | `renewTime` | later with each write, even if the wall clock goes back |
//! | `acquireTime`, `leaseTransitions` | of the last claim or release; how many claims |
//! | annotation `vvm/cell` | the value: epoch, incarnation, TTL, documents, and the whole key, which is compared |
//! | annotations `vvm/spec`, `vvm/epoch` | a digest of the spec that was written with the value; the last epoch |
//! | label `vvm/name` | the name, on all its Leases |
//!
//! Labels, annotations, owners and finalizers of other programs are kept.
//!
//! **Beside client-go**, which observes the spec and keeps annotations. A spec that does not match its digest was
//! written by another program. Then the holder is the one in the spec, for `leaseDurationSeconds` without a change. No
//! fence of ours stands on such a record, and the next epoch is larger than ours. If the other program replaced a
//! record under which a leader of ours may still work, a claim waits for the longest TTL of the name. So it does after
//! a Lease was deleted by hand, whose leader is lost (`Replaced`).
//!
//! **Login.** The kubeconfig is read once, because it may name another cluster later. The files that it names are read
//! for each connection, and none is kept after a 401. The token of a file is read again after a minute.
//!
//! **Errors.**
//!
//! | what went wrong | to a write | to a read | because |
//! |---|---|---|---|
//! | no connection: network, certificate, a file or plug-in of the login, or not within half the request timeout | `NotApplied` | `Unavailable` | nothing was sent |
//! | 401 | `NotApplied` | `Unavailable` | refused before anything else; a token may be replaced |
//! | 403 with a reason | `NotApplied` | `Unavailable` | refused before anything else; a server that has just started may not have read all Roles |
//! | 400, 405, 406, 413, 415, 422 with a reason | `Fatal` | `Fatal` | refused, and will be again |
//! | 404 of the namespace | `Fatal` | – | nothing can be created there |
//! | 404 of a Lease | refused, or `Replaced` if it was held | absent | |
//! | 409 | refused, or `Replaced` if another object has the name of one that was held | – | |
//! | 429 | `NotApplied` | `Unavailable` | refused by priority and fairness before it began |
//! | 5xx, 504 above all; any answer that no API server writes | `Unknown` | `Unavailable` | 9 of 15 writes that were answered by 504 had been applied |
//! | connection broken, or no answer within the request timeout | `Unknown` | `Unavailable` | the server may have begun |
//! | a held Lease without a duration, or one with another key | `Fatal` | `Fatal` | another program writes it |
//!
//! Opening fails for good at 401, 403, and a certificate, file or login plug-in that can't be used.

mod config;
mod connection;
mod credential;
mod exec;
mod kubeconfig;
mod names;
mod opening;
mod requests;
mod rows;

use crate::{
    cells::{Cell, CellCondition, CellLimits, CellStorage, CellWrite},
    drivers::{
        errors::{self, HandleClosed},
        watches::{NotWatched, Watcher, Watches},
    },
    key::{ClusterName, KEY_PREFIX_SLOT_COUNT, Partition},
    opening::OpenError,
    sysvvm::{Description, MOST_LISTED, OpenedStorage, Provenance, SysVvmHints},
};
use async_trait::async_trait;
use bytes::Bytes;
use config::{Address, Cluster};
use connection::Connections;
use ielections::{Entry, ReadError, WriteError};
pub(crate) use opening::init;
use requests::{Watch, WatchEvent};
#[cfg(feature = "testing")]
pub use rows::decodes;
use rows::{DecodeError, Lease};
use serde::Deserialize;
use std::{fmt, time::Duration};
use vvm_clock::{SystemClock, SystemWallClock, WallClock as _};

/// The Leases of a namespace, as cells. [`Cells`](crate::cells::Cells) makes elections of them.
pub struct LeaseStorage {
    connections: Connections,
    watches: Watches<Watch>,
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
        let connections = opening::open(&Address::parse(url)?).await?;
        Ok(Self { connections, watches: Watches::default() })
    }

    async fn cell(&self, key: &Partition, may_be_stale: bool) -> Result<Option<Cell>, ReadError> {
        let lease = self.connections.get(&names::name(key), may_be_stale).await;
        let cell = lease.and_then(|lease| Ok(lease.map(|lease| lease.cell(key)).transpose()?));
        cell.map_err(DriverError::into_read_error)
    }

    async fn set(
        &self,
        key: &Partition,
        value: &Bytes,
        record: Option<&Entry>,
        expected: CellCondition,
    ) -> Result<CellWrite, DriverError> {
        let now = SystemWallClock.since_unix_epoch();
        let written = match expected {
            CellCondition::Absent => {
                let lease = Lease::new(key, &self.connections.cluster.namespace).set(key, value, record, now);
                self.connections.create(&lease).await?
            }
            CellCondition::Tag(tag) => {
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

    /// The slot counts, by the names of their Leases. Those that a digest names are read.
    async fn slot_counts(&self) -> Result<Vec<Partition>, DriverError> {
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let (page, next) = self.connections.names(&token).await?;
            for name in page {
                let at = match names::slot_count(&name) {
                    None if names::is_digest(&name) => {
                        self.connections.get(&name, true).await?.and_then(|lease| lease.key())
                    }
                    at => at,
                };
                found.extend(at.filter(|at| ClusterName::of_slot_count(at).is_some()));
            }
            token = next;
            if token.is_empty() || found.len() >= MOST_LISTED {
                found.sort_unstable();
                found.truncate(MOST_LISTED);
                return Ok(found);
            }
        }
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
            // An attempt, a tenth of it, has time for a write and a new connection.
            min_ttl: Duration::from_secs(2),
            max_key_bytes: 2048,
            // Annotations may have 256 KiB, of which base64 takes a quarter. Some are for those of others.
            max_cell_bytes: 176 << 10,
        }
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
        expected: CellCondition,
    ) -> Result<CellWrite, WriteError> {
        self.write_slot(key, value, None, expected).await
    }

    async fn write_slot(
        &self,
        key: &Partition,
        value: Bytes,
        record: Option<&Entry>,
        expected: CellCondition,
    ) -> Result<CellWrite, WriteError> {
        self.set(key, &value, record, expected).await.map_err(DriverError::into_write_error)
    }

    async fn settings(&self) -> Result<Option<Vec<Partition>>, ReadError> {
        self.slot_counts().await.map(Some).map_err(DriverError::into_read_error)
    }

    fn hints(&self) -> Option<&dyn SysVvmHints> {
        Some(self)
    }

    fn opened(&self) -> Option<OpenedStorage> {
        let Cluster { namespace, server, .. } = &self.connections.cluster;
        let location = format!("namespace {namespace} of {server}");
        Some(OpenedStorage::at(location, Provenance::Existing))
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        describe(&self.connections).await.map_err(DriverError::into_read_error)
    }

    async fn close(&self) {
        self.connections.close().await;
        self.watches.close();
    }
}

impl fmt::Debug for LeaseStorage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "LeaseStorage({:?})", self.connections)
    }
}

impl Watcher for LeaseStorage {
    type Stream = Watch;

    fn watches(&self) -> &Watches<Watch> {
        &self.watches
    }

    fn clock(&self) -> &SystemClock {
        self.connections.clock()
    }

    async fn watch(&self, topic: &Partition) -> Result<Watch, NotWatched> {
        self.connections.watch(&names::label(topic)).await.map_err(|error| match error {
            DriverError::Closed(_) => NotWatched::Never,
            error => {
                tracing::debug!(%error, "can't watch");
                if let DriverError::Denied(_) = error { NotWatched::Denied } else { NotWatched::Failed }
            }
        })
    }

    async fn next(&self, stream: &mut Watch, topic: &Partition) -> Option<bool> {
        Some(is_hint(&stream.next().await?, topic))
    }
}

/// Whether a slot became vacant, or a request was made or ended. Renewals and claims are no hints.
fn is_hint(WatchEvent { kind, object }: &WatchEvent, topic: &Partition) -> bool {
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
    let Cluster { server, namespace, credentials, .. } = &connections.cluster;
    let description = Description::new(format!("Kubernetes {}", requests::version(connections).await?))
        .with("server", server)
        .with("namespace", namespace)
        .with("credentials", credentials);
    let missing = requests::missing_rights(connections).await?;
    if missing.is_empty() {
        return Ok(description);
    }
    Ok(description.concerned(format!(
        "no Role allows us to {} leases of coordination.k8s.io in namespace {namespace}: apply \
         packaging/kubernetes/base/rbac.yaml",
        missing.join(", ")
    )))
}

#[derive(Debug)]
struct Response {
    status: u16,
    body: Bytes,
}

#[derive(Debug, thiserror::Error)]
enum DriverError {
    #[error(transparent)]
    NotConnected(#[from] OpenError),
    #[error(
        "the API server does not accept our credentials: renew the token or certificate of the kubeconfig \
         or service account; if it stands in the kubeconfig itself, restart this process, too ({0})"
    )]
    Credentials(String),
    #[error(
        "the API server denies the request: bind a Role that allows get, create, update, list and watch on \
         leases of coordination.k8s.io, as packaging/kubernetes/base/rbac.yaml does ({0})"
    )]
    Denied(String),
    #[error("the namespace does not exist: create it, or correct the URL ({0})")]
    NoNamespace(String),
    #[error("the API server refuses the request: {0}")]
    Refused(String),
    #[error("the API server throttles our requests: apply packaging/kubernetes/flow-schema.yaml ({0})")]
    Throttled(String),
    /// Something else was in the way of a write that was not applied.
    #[error("the API server did not apply it: {0}")]
    Conflict(String),
    #[error("the API server did not confirm the request: {0}")]
    Unanswered(String),
    #[error(
        "Lease {0} was deleted while it was held: find out who deletes Leases. The slot can be claimed again \
         after the longest TTL"
    )]
    Gone(String),
    #[error(transparent)]
    Damaged(#[from] DecodeError),
    #[error(transparent)]
    Closed(#[from] HandleClosed),
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    kind: String,
    message: String,
    reason: String,
    details: Details,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Details {
    kind: String,
}

impl Status {
    /// Reads the answer. An answer of another program has no reason.
    fn from_response(answer: &Response) -> Self {
        let status: Self = serde_json::from_slice(&answer.body).unwrap_or_default();
        if status.kind == "Status" { status } else { Self::default() }
    }

    /// Whether the API server says that this Lease does not exist.
    fn is_absent(&self) -> bool {
        self.reason == "NotFound" && self.details.kind == "leases"
    }
}

impl DriverError {
    /// (I7) What is not certain is unknown.
    fn from_response(answer: &Response) -> Self {
        let status = Status::from_response(answer);
        let text = match &*status.message {
            "" => format!("HTTP status {} without the words of an API server", answer.status),
            message => format!("{message}: HTTP status {}", answer.status),
        };
        // Without a reason, a proxy may have answered after it passed the request on.
        let is_of_server = !status.reason.is_empty();
        match answer.status {
            401 => Self::Credentials(text),
            429 => Self::Throttled(text),
            403 if is_of_server => Self::Denied(text),
            404 if is_of_server && !status.is_absent() => Self::NoNamespace(text),
            409 if is_of_server => Self::Conflict(text),
            400 | 405 | 406 | 413 | 415 | 422 if is_of_server => Self::Refused(text),
            _ => Self::Unanswered(text),
        }
    }

    fn into_open_error(self, server: &str) -> OpenError {
        match self {
            Self::NotConnected(error) => error,
            Self::Throttled(_) | Self::Unanswered(_) | Self::Conflict(_) => OpenError::passing(format!(
                "the API server {server} did not answer the first request: {self}"
            )),
            error => OpenError::refused(format!("{error} [{server}]")),
        }
    }

    fn into_write_error(self) -> WriteError {
        match self {
            // A server without its own storage may not know a valid token for a moment. One that has just started
            // denies what a Role allows until it has read all Roles.
            Self::NotConnected(_)
            | Self::Credentials(_)
            | Self::Denied(_)
            | Self::Throttled(_)
            | Self::Conflict(_) => WriteError::NotApplied(self.into()),
            Self::Unanswered(_) => WriteError::Unknown(self.into()),
            Self::Gone(_) => WriteError::Replaced(self.into()),
            Self::NoNamespace(_) | Self::Refused(_) | Self::Damaged(_) | Self::Closed(_) => {
                WriteError::Fatal(self.into())
            }
        }
    }

    fn into_read_error(self) -> ReadError {
        errors::of_read(self.into_write_error())
    }
}

#[cfg(test)]
mod tests;
