//! The verbs: each one transaction, sent once.

#[cfg(feature = "testing")]
pub mod bare;
mod description;
mod documents;
mod hints;

use super::{
    errors::{Damaged, DriverError},
    open::{Address, Connections, OpenError},
    rows::{
        Keyspace,
        messages::{TxnRequest, TxnResponse},
    },
};
use crate::{
    key::Partition,
    step::{Done, Shown, Step},
    sysvvm::{Description, Opened, Provenance, SysVvmHints, SysVvmStorage},
};
use async_trait::async_trait;
use hints::Watches;
use ielections::{
    Document, DocumentId, DocumentLimits, Entry, Epoch, FenceState, Incarnation, Limits, Page, ReadError,
    Scan, Slot, WriteError,
};
use std::time::Duration;

/// A handle on a storage in etcd: connections of its own.
#[derive(Debug)]
pub struct EtcdStorage {
    connections: Connections,
    keyspace: Keyspace,
    watches: Watches,
}

/// A transaction has at most 128 operations: one for the storage's own key, and two for each slot.
const MOST_SLOTS: usize = 63;

impl EtcdStorage {
    /// Connects to the cluster that `url` names, as the module's documentation says, and checks that the
    /// prefix is ours. Creates nothing: [`init_storage`](crate::init_storage) does.
    ///
    /// # Errors
    /// See [`OpenError`]: each says what to do.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let (connections, keyspace) = super::open::open(Address::parse(url)?).await?;
        Ok(Self { connections, keyspace, watches: Watches::default() })
    }

    /// Sends a write. Returns the slot that stood in its way; `None` if it was applied. `is_met` says whether
    /// a slot is the one that the write expected.
    async fn write(
        &self,
        request: TxnRequest,
        is_met: impl Fn(&Slot) -> bool,
    ) -> Result<Option<Slot>, WriteError> {
        let outcome = async {
            let answer = self.connections.transaction(&request).await?;
            if answer.succeeded {
                return Ok(None);
            }
            match self.keyspace.fence(answer)?.slot {
                stands if is_met(&stands) => Err(Damaged::not_shown().into()),
                stands => Ok(Some(stands)),
            }
        };
        outcome.await.map_err(DriverError::of_write)
    }

    async fn swap(&self, at: &Partition, from: &Slot, entry: &Entry) -> Result<Option<Slot>, WriteError> {
        let request = self.keyspace.swap(at, from, entry);
        self.write(request, |stands| stands.is_as_expected(from)).await
    }

    /// Sends reads, and returns what is behind that of the storage's own key.
    async fn read_with<T>(
        &self,
        request: TxnRequest,
        decode: impl FnOnce(TxnResponse) -> Result<T, DriverError>,
    ) -> Result<T, ReadError> {
        self.connections.transaction(&request).await.and_then(decode).map_err(DriverError::of_read)
    }

    /// The setting that an answer shows.
    fn shown_setting(&self, answer: TxnResponse) -> Result<Option<Vec<u8>>, DriverError> {
        let shown = self.keyspace.ranges(answer)?.into_iter().flat_map(|range| range.kvs).next();
        Ok(shown.map(|shown| shown.value.into()))
    }
}

impl EtcdStorage {
    async fn claim(&self, at: Partition, from: &Slot, entry: &Entry) -> Result<Done, WriteError> {
        Ok(self.swap(&at, from, entry).await?.into())
    }

    async fn renew(&self, at: Partition, held: &Entry, entry: &Entry) -> Result<Done, WriteError> {
        let from = Slot::Held { entry: held.clone(), proven_age: None };
        Ok(self.swap(&at, &from, entry).await?.into())
    }

    async fn release(
        &self,
        at: Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Done, WriteError> {
        let request = self.keyspace.release(&at, incarnation, epoch);
        let is_ours = |stands: &Slot| stands.entry().is_some_and(|entry| entry.is_of(incarnation, epoch));
        Ok(self.write(request, is_ours).await?.into())
    }

    async fn settle(&self, at: Partition, value: &[u8]) -> Result<Done, WriteError> {
        let outcome = async {
            let answer = self.connections.transaction(&self.keyspace.settle(&at, value)).await?;
            if answer.succeeded {
                return Ok(Done::Applied);
            }
            let stands = self.shown_setting(answer)?.ok_or_else(Damaged::not_shown)?;
            Ok(Done::Refused(Shown::Setting(stands)))
        };
        outcome.await.map_err(DriverError::of_write)
    }
}

#[async_trait]
impl SysVvmStorage for EtcdStorage {
    fn limits(&self) -> Limits {
        Limits {
            // An attempt may take a tenth of it: room for a connection, for a disk that is slow once, and for
            // two beats between etcd's members.
            min_ttl: Duration::from_secs(2),
            max_key_bytes: 1536,
            max_value_bytes: 16 << 10,
            scan_batch: MOST_SLOTS,
        }
    }

    fn shared_between_processes(&self) -> bool {
        true
    }

    fn opened(&self) -> Option<Opened> {
        Some(Opened::at(self.connections.address().to_string(), Provenance::Existing))
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<Done, WriteError> {
        match &step {
            Step::Claim { from, to } => self.claim(at, from, to).await,
            Step::Renew { from, to } => self.renew(at, from, to).await,
            Step::Release { incarnation, epoch } => self.release(at, *incarnation, *epoch).await,
            Step::Batch { fence, writes } => self.write_documents(&at, fence, writes).await,
            Step::Settle { value } => self.settle(at, value).await,
        }
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

    fn document_limits(&self) -> Option<DocumentLimits> {
        Some(self.document_limits())
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        self.fence_state(at).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.document(at, id).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        self.scan_documents(at, scan).await
    }

    fn hints(&self) -> Option<&dyn SysVvmHints> {
        Some(self)
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        description::describe(&self.connections, self.keyspace.own()).await.map_err(DriverError::of_read)
    }

    async fn close(&self) {
        self.connections.close().await;
        self.watches.end();
    }
}
