//! Driver `etcd`: keys below a prefix of an etcd cluster. docs/storages/etcd.md has rights, costs and traps, and
//! docs/storage.md the options.
//!
//! tonic speaks gRPC, on one connection for all requests of a handle. Its tasks end with the handle, and nothing sends a
//! request a second time.
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
//! `Replaced` from then on.
//!
//! **Members.** Another member is tried if one accepts no connection in its part of the request timeout, and by the
//! next request after one did not answer.
//!
//! **Errors.** What is not in the table is `Unknown` to a write, and `Unavailable` to a read.
//!
//! | what went wrong | to a write | to a read | because |
//! |---|---|---|---|
//! | no connection: network; the login was not answered; certificate, user or password refused, no etcd | `NotApplied` | `Unavailable` | nothing was sent. Opening fails for good at what is refused |
//! | 3 invalid argument, 7 permission denied, 12 unimplemented | `Fatal` | `Fatal` | refused before it is proposed or instead of being applied, and will be again |
//! | 3 revision of auth store is old, 16 unauthenticated | `NotApplied` | `Unavailable` | the same; the next request logs in again |
//! | 8 too many requests, 9 not supported for learner | `NotApplied` | `Unavailable` | refused before it is proposed |
//! | 8 database space exceeded | `Unknown` | `Unavailable` | a member may have applied the write that exceeds it |
//! | 14 request timed out, leader changed, server stopped | `Unknown` | `Unavailable` | it was proposed, and may be applied later |
//! | connection broken, or no answer within the request timeout | `Unknown` | `Unavailable` | the member may have begun |
//! | another random key or none, another cluster, an earlier revision | `Replaced` | `Replaced` | another leader may be at work |
//! | a value that makes no sense | `Fatal` | `Fatal` | another program writes below the prefix |

mod address;
mod channel;
mod connections;
mod errors;
mod messages;
mod open;
mod rows;

use crate::{
    drivers::{
        errors::is_met,
        watches::{NotWatched, Watcher, Watches},
    },
    key::Partition,
    opening::OpenError,
    step::{CurrentState, Step, StepOutcome},
    sysvvm::{Description, ListedSetting, OpenedStorage, Provenance, SysVvmHints, SysVvmStorage},
};
use address::Address;
use async_trait::async_trait;
use connections::{Connections, Watch};
use errors::{DecodeError, DriverError};
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, WriteError,
};
use messages::{TxnRequest, TxnResponse};
pub(crate) use open::init;
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
        let (connections, keyspace) = open::open(Address::parse(url)?).await?;
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
        self.connections.transaction(&request).await.and_then(decode).map_err(DriverError::of_read)
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
        self.carry_out(&at, &step).await.map_err(DriverError::of_write)
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.read_with(self.keyspace.read(&at), |answer| Ok(self.keyspace.fence(answer)?.slot)).await
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let mut slots = Vec::with_capacity(at.len());
        for at in at.chunks(MOST_SLOTS) {
            let answer = self.connections.stale(&self.keyspace.peek(at)).await;
            let peeked = answer.and_then(|answer| self.keyspace.peeked(answer));
            slots.extend(peeked.map_err(DriverError::of_read)?);
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
        open::describe(&self.connections).await.map_err(DriverError::of_read)
    }

    async fn close(&self) {
        self.connections.close().await;
        self.watches.close();
    }
}

#[async_trait]
impl SysVvmHints for EtcdStorage {
    async fn announce(&self, _topic: &Partition) {}

    async fn hinted(&self, topic: &Partition) {
        self.watches.hinted(self, topic).await;
    }

    fn listens(&self, topic: &Partition) -> bool {
        self.watches.listens(topic)
    }
}

impl Watcher for EtcdStorage {
    type Stream = Watch;

    fn clock(&self) -> &SystemClock {
        self.connections.clock()
    }

    async fn watch(&self, topic: &Partition) -> Result<Watch, NotWatched> {
        let ranges = self.keyspace.watched(topic);
        if ranges.is_empty() {
            return Err(NotWatched::Never);
        }
        self.connections.watch(ranges).await.map_err(|error| match error {
            DriverError::Closed(_) => NotWatched::Never,
            error => {
                tracing::debug!(%error, "can't watch");
                NotWatched::Failed
            }
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
        address::Address,
        connections::Connections,
        errors::DriverError,
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
        ///
        /// # Errors
        /// See [`OpenError`].
        pub fn new(url: &str) -> Result<Self, OpenError> {
            Ok(Self(Connections::new(Address::parse(url)?)?))
        }

        /// Replaces exactly `from` by `to`; `None` is the absence of a key. Returns whether it did.
        ///
        /// # Errors
        /// As the driver's writes.
        ///
        /// # Cancel safety
        /// Dropped, the transaction may be applied, now or later.
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
            let answer = self.0.transaction(&request).await.map_err(DriverError::of_write)?;
            Ok(answer.succeeded)
        }
    }
}
