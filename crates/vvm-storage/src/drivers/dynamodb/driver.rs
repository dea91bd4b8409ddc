//! The verbs of slots and settings: each is one request, sent once.

mod description;
mod documents;

use super::{
    errors::{Damaged, DriverError},
    open::{Address, OpenError, PEEKED_AT_ONCE, Requests},
    rows,
};
use crate::{
    drivers::closed::Closed,
    key::Partition,
    step::{Done, Shown, Step},
    sysvvm::{Description, Opened, Provenance, SysVvmStorage},
};
use async_trait::async_trait;
use ielections::{
    Document, DocumentId, DocumentLimits, Entry, Epoch, FenceState, Incarnation, Limits, Page, ReadError,
    Scan, Slot, WriteError,
};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// A handle of a table, with connections of its own.
#[derive(Debug)]
pub struct DynamoDbStorage {
    /// `None` once closed. A running call keeps the connections until it ends.
    requests: Mutex<Option<Requests>>,
    /// Region, table and endpoint. For display only.
    location: String,
}

impl DynamoDbStorage {
    /// Opens the table that `url` names, and checks it. Creates nothing:
    /// [`init_storage`](crate::init_storage) does.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let address = Address::parse(url)?;
        Ok(Self::on(super::open::open(&address).await?, address.to_string()))
    }

    pub(super) fn on(requests: Requests, location: String) -> Self {
        Self { requests: Mutex::new(Some(requests)), location }
    }

    fn requests(&self) -> Result<Requests, Closed> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Closed)
    }

    /// Replaces `from` by `entry`. `None` if it was applied, else the slot as it is.
    async fn swap(&self, at: &Partition, from: &Slot, entry: &Entry) -> Result<Option<Slot>, WriteError> {
        let requests = self.requests()?;
        let swap = rows::swap(requests.update(at.as_bytes()), from, entry);
        let outcome = requests.unless_refused(swap).await.and_then(|refusal| match refusal {
            None => Ok(None),
            Some(item) => match rows::slot(item.as_ref())? {
                slot if slot.is_as_expected(from) => Err(Damaged::unexplained_refusal().into()),
                slot => Ok(Some(slot)),
            },
        });
        outcome.map_err(DriverError::into_write_error)
    }
}

impl DynamoDbStorage {
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
        let requests = self.requests()?;
        let release = rows::release(requests.update(at.as_bytes()), incarnation, epoch);
        let outcome = requests.unless_refused(release).await.and_then(|refusal| match refusal {
            None => Ok(Done::Applied),
            Some(item) => Ok(Done::Refused(rows::slot(item.as_ref())?.into())),
        });
        outcome.map_err(DriverError::into_write_error)
    }

    async fn settle(&self, at: Partition, value: &[u8]) -> Result<Done, WriteError> {
        let requests = self.requests()?;
        let settle = rows::settle(requests.update(at.as_bytes()), value);
        let outcome = requests.unless_refused(settle).await.and_then(|refusal| match refusal {
            None => Ok(Done::Applied),
            Some(item) => {
                let stands = rows::setting(item.as_ref())?.ok_or_else(Damaged::unexplained_refusal)?;
                Ok(Done::Refused(Shown::Setting(stands)))
            }
        });
        outcome.map_err(DriverError::into_write_error)
    }
}

#[async_trait]
impl SysVvmStorage for DynamoDbStorage {
    fn limits(&self) -> Limits {
        Limits {
            // An attempt may take a tenth of it: enough for a write and for a new connection.
            min_ttl: Duration::from_secs(2),
            // DynamoDB's limit for a partition key.
            max_key_bytes: 2048,
            // DynamoDB takes 400 KB; a write costs one unit for each KB.
            max_value_bytes: 16 << 10,
            // The limit of one request.
            scan_batch: PEEKED_AT_ONCE,
        }
    }

    fn shared_between_processes(&self) -> bool {
        true
    }

    fn opened(&self) -> Option<Opened> {
        Some(Opened::at(self.location.clone(), Provenance::Existing))
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
        let item = self.requests()?.read(at.as_bytes()).await;
        item.and_then(|item| Ok(rows::slot(item.as_ref())?)).map_err(DriverError::into_read_error)
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let requests = self.requests()?;
        let mut slots = Vec::with_capacity(at.len());
        for at in at.chunks(PEEKED_AT_ONCE) {
            let items = requests.peek(at).await.map_err(DriverError::into_read_error)?;
            for at in at {
                let slot = rows::slot(items.get(at.as_bytes()));
                slots.push(slot.map_err(|damaged| DriverError::from(damaged).into_read_error())?);
            }
        }
        Ok(slots)
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        let item = self.requests()?.read(at.as_bytes()).await;
        item.and_then(|item| Ok(rows::setting(item.as_ref())?)).map_err(DriverError::into_read_error)
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

    async fn describe(&self) -> Result<Description, ReadError> {
        let requests = self.requests()?;
        description::describe(&requests.client, &requests.table).await.map_err(DriverError::into_read_error)
    }

    async fn close(&self) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
