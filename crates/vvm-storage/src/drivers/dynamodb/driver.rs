//! The verbs: each is one request, sent once; a batch is one transaction.

use super::{
    address::Address,
    description,
    errors::{Damaged, DriverError},
    open,
    requests::{PEEKED_AT_ONCE, Requests},
    rows::{self, MAX_ID_BYTES},
};
use crate::{
    drivers::{closed::Closed, seen::is_met},
    key::Partition,
    open_error::OpenError,
    step::{Done, Shown, Step},
    sysvvm::{Description, Opened, Provenance, SysVvmStorage},
};
use async_trait::async_trait;
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, WriteError,
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
        Ok(Self::on(open::open(&address).await?, address.to_string()))
    }

    pub(super) fn on(requests: Requests, location: String) -> Self {
        Self { requests: Mutex::new(Some(requests)), location }
    }

    fn requests(&self) -> Result<Requests, Closed> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Closed)
    }
}

async fn carry_out(requests: &Requests, at: &[u8], step: &Step) -> Result<Done, DriverError> {
    let update = requests.update(at);
    let update = match step {
        Step::Claim { from, to } => rows::claim(update, from, to),
        Step::Renew { from, to } => rows::renewal(update, from, to),
        Step::Release { incarnation, epoch } => rows::release(update, *incarnation, *epoch),
        Step::Settle { value } => rows::settle(update, value),
        Step::Batch { fence, writes } => return requests.write_documents(at, fence, writes).await,
    };
    let Some(item) = requests.unless_refused(update).await? else { return Ok(Done::Applied) };
    if let Step::Settle { .. } = step {
        let stands = rows::setting(item.as_ref())?.ok_or_else(Damaged::unexplained_refusal)?;
        return Ok(Done::Refused(Shown::Setting(stands)));
    }
    match rows::slot(item.as_ref())? {
        stands if is_met(step, &stands) => Err(Damaged::unexplained_refusal().into()),
        stands => Ok(Done::Refused(stands.into())),
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
        let requests = self.requests()?;
        carry_out(&requests, at.as_bytes(), &step).await.map_err(DriverError::into_write_error)
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
        Some(DocumentLimits {
            max_id_bytes: MAX_ID_BYTES,
            // DynamoDB takes items of 400 KB, with their keys and the names of their attributes.
            max_body_bytes: 384 << 10,
            // A transaction has 100 actions at most. Two are for the leader record and the count of batches.
            max_batch: 98,
            // DynamoDB allows a transaction of 4 MB. Each item has a partition key of up to 2 KB, and the
            // count repeats all ids. A batch uses only a quarter, because a renewal waits for it.
            max_batch_bytes: 1 << 20,
            // DynamoDB ends a page at 1 MB anyway.
            max_page: 1_000,
        })
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        self.requests()?.fence_state(at.as_bytes()).await.map_err(DriverError::into_read_error)
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.requests()?.document(at.as_bytes(), id).await.map_err(DriverError::into_read_error)
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        self.requests()?.scan_documents(at.as_bytes(), scan).await.map_err(DriverError::into_read_error)
    }
    async fn describe(&self) -> Result<Description, ReadError> {
        let requests = self.requests()?;
        description::describe(&requests.client, &requests.table).await.map_err(DriverError::into_read_error)
    }

    async fn close(&self) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
