//! Driver `etcd`: keys below a prefix of an etcd cluster. docs/storages/etcd.md has rights, costs and traps, and
//! docs/storage.md the options. tonic speaks gRPC, on one connection for all requests of a handle. Its tasks end with
//! the handle, and nothing sends a request a second time, except for an opening.
//!
//! **How the contract is kept.** Each verb is one transaction. A slot has three keys: `l` with epoch and incarnation,
//! which stays when the slot is released; `w` with the number of the last write, TTL and holder; `b` with the count of
//! batches. A claim or a renewal compares `l` and `w`, a release `l`. A refused transaction shows the keys as it found
//! them. etcd's leases are not used: they would end a record early. No age is proven.
//!
//! **Documents** are keys of their own. A batch compares `l`, `b` and the conditions of its documents, and writes all
//! of them. **Reads** are linearizable; `peek` shows what the member has that is asked.
//!
//! **Another storage.** [`init_storage`](crate::init_storage) creates a key with random bytes, `format`. Each write
//! compares it and each read shows it: the ids of etcd's clusters don't tell them apart. A handle also compares these
//! ids, and revisions, which go back when a cluster is restored from a backup. A handle that finds another storage is
//! `Replaced` from then on; after a restore, until the revision is as large again.
//!
//! **Members.** Another is tried if one accepts no connection, and next after one is silent. An opening tries all.
//!
//! **Errors.** What is not in the table is `Unknown` to a write, and `Unavailable` to a read.
//!
//! | what went wrong | to a write | to a read | because |
//! |---|---|---|---|
//! | no connection: network; the login failed; certificate, user or password refused, no etcd | `NotApplied` | `Unavailable` | nothing was sent. Opening fails for good at what is refused |
//! | 3 invalid argument, 12 unimplemented | `Fatal` | `Fatal` | refused before it is proposed or instead of being applied, and will be again |
//! | 7 permission denied. Opening fails for good | `NotApplied` | `Unavailable` | the same; a role may be granted again |
//! | 3 revision of auth store is old, 16 unauthenticated | `NotApplied` | `Unavailable` | the same; the next request logs in again |
//! | 8 too many requests, 9 not supported for learner | `NotApplied` | `Unavailable` | refused before it is proposed |
//! | 8 database space exceeded | `Unknown` | `Unavailable` | a member may have applied the write that exceeds it |
//! | 14 request timed out, leader changed, server stopped | `Unknown` | `Unavailable` | it was proposed, and may be applied later |
//! | connection broken, or no answer within the request timeout | `Unknown` | `Unavailable` | the member may have begun |
//! | another random key or none, another cluster, an earlier revision | `Replaced` | `Replaced` | another leader may be at work |
//! | a value that makes no sense | `Fatal` | `Fatal` | another program writes below the prefix |

mod channel;
mod config;
mod connection;
mod messages;
mod opening;
mod requests;
mod rows;

use crate::{
    drivers::{
        errors::{self, is_met},
        watches::{NotWatched, Watcher, Watches},
    },
    key::Partition,
    opening::OpenError,
    step::{CurrentState, Step, StepOutcome},
    sysvvm::{Description, ListedSetting, OpenedStorage, Provenance, SysVvmHints, SysVvmStorage},
};
use async_trait::async_trait;
use config::Address;
use connection::{Connections, Watch};
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, WriteError,
};
use messages::{TxnRequest, TxnResponse};
pub(crate) use opening::init;
use rows::Keyspace;
#[cfg(feature = "testing")]
pub use rows::decodes;
use std::time::Duration;
use vvm_clock::SystemClock;

/// A handle on a storage in etcd. Each verb is one transaction, sent once.
#[derive(Debug)]
pub struct EtcdStorage {
    connections: Connections,
    keyspace: Keyspace,
    watches: Watches<Watch>,
}

/// A transaction has at most 128 operations: one for the storage's own key, and two for each slot.
const MOST_SLOTS: usize = 63;

impl EtcdStorage {
    /// Connects to the cluster that `url` names, and checks that the prefix is ours. Creates nothing.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let (connections, keyspace) = opening::open(Address::parse(url)?).await?;
        Ok(Self { connections, keyspace, watches: Watches::default() })
    }

    async fn carry_out(&self, at: &Partition, step: &Step) -> Result<StepOutcome, DriverError> {
        let answer = self.connections.transaction(&self.keyspace.step(at, step)).await?;
        if answer.succeeded {
            return Ok(StepOutcome::Applied);
        }
        Ok(StepOutcome::Refused(match step {
            Step::Settle { .. } => {
                CurrentState::Setting(self.shown_setting(answer)?.ok_or_else(DecodeError::not_shown)?)
            }
            Step::Batch { .. } => {
                self.keyspace.fence(answer)?;
                CurrentState::Nothing
            }
            Step::Claim { .. } | Step::Renew { .. } | Step::Release { .. } => {
                match self.keyspace.fence(answer)?.slot {
                    stands if is_met(step, &stands) => return Err(DecodeError::not_shown().into()),
                    stands => CurrentState::Slot(stands),
                }
            }
        }))
    }

    async fn read_with<T>(
        &self,
        request: TxnRequest,
        decode: impl FnOnce(TxnResponse) -> Result<T, DriverError>,
    ) -> Result<T, ReadError> {
        self.connections.transaction(&request).await.and_then(decode).map_err(DriverError::into_read_error)
    }

    fn shown_setting(&self, answer: TxnResponse) -> Result<Option<Vec<u8>>, DriverError> {
        let shown = self.keyspace.ranges(answer)?.into_iter().flat_map(|range| range.kvs).next();
        Ok(shown.map(|shown| shown.value.into()))
    }
}

#[async_trait]
impl SysVvmStorage for EtcdStorage {
    fn limits(&self) -> Limits {
        Limits {
            // An attempt, a tenth of it, has time for a connection, a slow disk and two beats between etcd's members.
            min_ttl: Duration::from_secs(2),
            max_key_bytes: 1536,
            max_value_bytes: 16 << 10,
            scan_batch: MOST_SLOTS,
        }
    }

    fn opened(&self) -> Option<OpenedStorage> {
        Some(OpenedStorage::at(self.connections.address().to_string(), Provenance::Existing))
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        self.carry_out(&at, &step).await.map_err(DriverError::into_write_error)
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.read_with(self.keyspace.read(&at), |answer| Ok(self.keyspace.fence(answer)?.slot)).await
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let mut slots = Vec::with_capacity(at.len());
        for at in at.chunks(MOST_SLOTS) {
            let answer = self.connections.stale(&self.keyspace.peek(at)).await;
            let peeked = answer.and_then(|answer| self.keyspace.peeked(answer));
            slots.extend(peeked.map_err(DriverError::into_read_error)?);
        }
        Ok(slots)
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.read_with(self.keyspace.setting(&at), |answer| self.shown_setting(answer)).await
    }

    async fn settings(&self) -> Result<Option<Vec<ListedSetting>>, ReadError> {
        self.read_with(self.keyspace.settings(), |answer| self.keyspace.settings_of(answer)).await.map(Some)
    }

    fn document_limits(&self) -> Option<DocumentLimits> {
        Some(DocumentLimits {
            max_id_bytes: 512,
            max_body_bytes: 512 << 10,
            // A transaction has at most 128 comparisons: three for the fence, and two for each document.
            max_batch: 62,
            // A request has at most 1.5 MiB, of which 62 documents take 400 KiB for keys.
            max_batch_bytes: 1 << 20,
            max_page: 64,
        })
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        self.read_with(self.keyspace.read(at), |answer| self.keyspace.fence(answer)).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        let request = self.keyspace.document(at, id);
        self.read_with(request, |answer| Ok(self.keyspace.documents_of(at, answer)?.0.pop())).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        let request = self.keyspace.documents_page(at, scan);
        let page = |answer| {
            let (documents, more) = self.keyspace.documents_of(at, answer)?;
            let next = documents.last().filter(|_| more).map(|last| last.id.clone());
            Ok(Page { documents, next })
        };
        self.read_with(request, page).await
    }

    fn hints(&self) -> Option<&dyn SysVvmHints> {
        Some(self)
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        opening::describe(&self.connections).await.map_err(DriverError::into_read_error)
    }

    async fn close(&self) {
        self.connections.close().await;
        self.watches.close();
    }
}

impl Watcher for EtcdStorage {
    type Stream = Watch;

    fn watches(&self) -> &Watches<Watch> {
        &self.watches
    }

    fn clock(&self) -> &SystemClock {
        self.connections.clock()
    }

    async fn watch(&self, topic: &Partition) -> Result<Watch, NotWatched> {
        let ranges = self.keyspace.watched(topic);
        if ranges.is_empty() {
            return Err(NotWatched::Never);
        }
        self.connections.watch(ranges).await.map_err(|error| {
            tracing::debug!(%error, "can't watch");
            error.into_not_watched()
        })
    }

    async fn next(&self, stream: &mut Watch, topic: &Partition) -> Option<bool> {
        match stream.next().await {
            Ok(answer) if answer.canceled => None,
            Ok(answer) => Some(answer.events.iter().any(|event| self.keyspace.is_hint(topic, event))),
            Err(error) => {
                tracing::debug!(%error, "the watch has ended");
                None
            }
        }
    }
}

/// What one would write by hand, for measurements beside the driver.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod bare {
    use super::{
        DriverError,
        config::Address,
        connection::Connections,
        messages::{TxnRequest, absent, delete, equal, put, range},
    };
    use crate::opening::OpenError;
    use bytes::Bytes;
    use ielections::WriteError;

    /// One key for a slot, whose value is the whole record. It proves no epoch.
    #[derive(Debug)]
    pub struct BareEtcd(Connections);

    impl BareEtcd {
        /// Takes everything but the prefix from the URL of a storage. Connects at the first request.
        pub fn new(url: &str) -> Result<Self, OpenError> {
            Ok(Self(Connections::new(Address::parse(url)?)?))
        }

        /// Replaces exactly `from` by `to`; `None` is the absence of a key. Returns whether it did. Fails as the
        /// driver's writes. Dropped, the transaction may be applied, now or later.
        pub async fn swap(
            &self,
            key: Bytes,
            from: Option<Bytes>,
            to: Option<Bytes>,
        ) -> Result<bool, WriteError> {
            let expected = from.map_or_else(|| absent(key.clone()), |from| equal(key.clone(), from));
            let change = to.map_or_else(|| delete(key.clone()), |to| put(key.clone(), to));
            let request =
                TxnRequest { compare: vec![expected], success: vec![change], failure: vec![range(key)] };
            let answer = self.0.transaction(&request).await.map_err(DriverError::into_write_error)?;
            Ok(answer.succeeded)
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum DriverError {
    /// No connection could be made, or no login: the request was not sent.
    #[error(transparent)]
    NotConnected(#[from] OpenError),
    /// The member refused the request before it proposed it, and may accept another one.
    #[error("etcd did not begin: {0}")]
    NotBegun(String),
    #[error("etcd did not begin: {0}; the next request logs in again")]
    LoginExpired(String),
    #[error(
        "etcd denies it: {0}; the user needs a role that reads and writes the prefix: etcdctl role grant-permission ROLE \
         --prefix=true readwrite PREFIX/"
    )]
    Denied(String),
    /// The member refused the request, and so it will until an operator acts.
    #[error("etcd refuses it: {0}")]
    Refused(String),
    #[error("etcd did not answer whether it was applied: {0}")]
    Unanswered(String),
    #[error(
        "{0}: another leader may be at work. Find out what replaced the storage, run `vvm init-storage` if \
         it is empty, and start this process again"
    )]
    Replaced(&'static str),
    #[error(transparent)]
    Damaged(#[from] DecodeError),
    #[error(transparent)]
    Closed(#[from] errors::HandleClosed),
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "below the prefix is a value that no election wrote: {0}. Stop all candidates, and find out what writes \
     there"
)]
struct DecodeError(String);

impl DecodeError {
    fn new(what: impl ToString) -> Self {
        Self(what.to_string())
    }

    /// A refusal although what stands is what was expected.
    fn not_shown() -> Self {
        Self::new("a write was refused, and no value is in its way")
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum CallError {
    NotSent(String),
    Disconnected(String),
    Broken(String),
    Status { code: i32, message: String },
}

const OF_A_LEARNER: &str = "not supported for learner";

impl From<CallError> for DriverError {
    /// (I7) Only a status that is given before a proposal, or instead of its application, is certain.
    fn from(error: CallError) -> Self {
        let (code, message) = match error {
            CallError::NotSent(why) => return Self::NotBegun(why),
            CallError::Disconnected(why) | CallError::Broken(why) => return Self::Unanswered(why),
            CallError::Status { code, message } => (code, message),
        };
        let says = |part| message.contains(part);
        match code {
            // The login's rights have changed since: compared when it is applied, and then it is not.
            3 if says("revision of auth store is old") => Self::LoginExpired(message),
            3 if says("user name is empty") => {
                Self::Refused(format!("{message}; it requires a login: add user=NAME"))
            }
            3 | 12 => Self::Refused(message),
            7 => Self::Denied(message),
            // "database space exceeded" may come with a write that was applied, "too many requests" not.
            8 if says("too many requests") => Self::NotBegun(message),
            9 if says(OF_A_LEARNER) => Self::NotBegun(message),
            16 => Self::LoginExpired(message),
            _ => Self::Unanswered(format!("{message} (gRPC status {code})")),
        }
    }
}

impl DriverError {
    /// Whether the member is as good as any other for the next request.
    fn leaves_connection_usable(&self) -> bool {
        matches!(self, Self::Denied(_) | Self::Refused(_) | Self::LoginExpired(_))
    }

    fn of_cancelled_watch(reason: String) -> Self {
        if reason.contains("permission denied") { Self::Denied(reason) } else { Self::Refused(reason) }
    }

    fn into_not_watched(self) -> NotWatched {
        match self {
            Self::Closed(_) => NotWatched::Never,
            Self::Denied(_) => NotWatched::Denied,
            _ => NotWatched::Failed,
        }
    }

    fn into_open_error(self) -> OpenError {
        match self {
            Self::NotConnected(error) => error,
            Self::Denied(_) | Self::Refused(_) | Self::Damaged(_) => OpenError::refused(self.to_string()),
            other => OpenError::passing(other.to_string()),
        }
    }

    fn into_write_error(self) -> WriteError {
        match self {
            // The members were accepted at opening. A password or certificate is replaced on both sides in turn.
            Self::NotConnected(_) | Self::NotBegun(_) | Self::LoginExpired(_) | Self::Denied(_) => {
                WriteError::NotApplied(self.into())
            }
            Self::Unanswered(_) => WriteError::Unknown(self.into()),
            Self::Replaced(_) => WriteError::Replaced(self.into()),
            // A damaged value comes with a refusal alone.
            Self::Refused(_) | Self::Damaged(_) | Self::Closed(_) => WriteError::Fatal(self.into()),
        }
    }

    fn into_read_error(self) -> ReadError {
        errors::of_read(self.into_write_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_certain_only_if_nothing_can_have_been_applied() {
        let outcome = |code, message: &str| {
            let error = CallError::Status { code, message: message.to_owned() };
            errors::kinds::of_write(&DriverError::from(error).into_write_error())
        };
        let table = [
            (2, "", "Unknown"),
            (3, "etcdserver: duplicate key given in txn request", "Fatal"),
            (3, "etcdserver: revision of auth store is old", "NotApplied"),
            (3, "etcdserver: user name is empty", "Fatal"),
            (4, "context deadline exceeded", "Unknown"),
            (7, "etcdserver: permission denied", "NotApplied"),
            (8, "etcdserver: mvcc: database space exceeded", "Unknown"),
            (8, "etcdserver: too many requests", "NotApplied"),
            (9, "etcdserver: rpc not supported for learner", "NotApplied"),
            (9, "etcdserver: not leader", "Unknown"),
            (12, "unknown service etcdserverpb.KV", "Fatal"),
            (14, "etcdserver: request timed out", "Unknown"),
            (14, "etcdserver: leader changed", "Unknown"),
            (15, "etcdserver: corrupt cluster", "Unknown"),
            (16, "etcdserver: invalid auth token", "NotApplied"),
        ];
        for (code, message, expected) in table {
            assert_eq!(outcome(code, message), expected, "{code} {message}");
        }
        let broken = CallError::Broken(String::new());
        assert!(matches!(DriverError::from(broken).into_write_error(), WriteError::Unknown(_)));
        let unsent = CallError::NotSent(String::new());
        assert!(matches!(DriverError::from(unsent).into_write_error(), WriteError::NotApplied(_)));
    }

    #[test]
    fn denial_ends_an_opening_and_is_tried_again_later_on_the_same_connection() {
        let message = "etcdserver: permission denied".to_owned();
        let denied = || DriverError::from(CallError::Status { code: 7, message: message.clone() });
        let error = denied().into_open_error();
        assert!(!error.is_passing() && error.to_string().contains("grant-permission"), "{error}");
        assert!(matches!(denied().into_read_error(), ReadError::Unavailable(_)));
        assert!(denied().leaves_connection_usable());
        assert_eq!(denied().into_not_watched(), NotWatched::Denied);
        for (reason, expected) in
            [(&*message, NotWatched::Denied), ("etcdserver: invalid auth token", NotWatched::Failed)]
        {
            let cancelled = DriverError::of_cancelled_watch(format!("rpc error: {reason}"));
            assert_eq!(cancelled.into_not_watched(), expected, "{reason}");
        }
    }
}
