//! Driver `dynamodb`: a table of Amazon DynamoDB. Several machines, without a server to operate.
//!
//! Tested on DynamoDB Local 2.6.1, and against a test server for what DynamoDB Local can't show. Not tested
//! on AWS.
//!
//! **Records.** One partition per slot, whose first item is the leader record. Each verb that writes is one
//! conditional `UpdateItem`. DynamoDB applies it completely or not at all, and in one order. The answer to a
//! refused update contains the present item (`ReturnValuesOnConditionCheckFailure`). Reads are consistent;
//! `peek` is not, and costs half. A release removes the record from the item and keeps the epoch. Only these
//! updates write to the table. The retries of the client library are off, so nothing is sent twice: the
//! second copy of an applied update would be refused because of the first.
//!
//! **Documents** are items of their slot's partition. A batch is one `TransactWriteItems`. It consists of a
//! `ConditionCheck` of the leader record (epoch and incarnation), an update of the item with the number and
//! the ids of the last batch, and a put or delete for each document, with its condition. While it runs, a
//! renewal or claim of the slot is refused as a conflict, and vice versa. A conflict changes nothing, so the
//! request may be sent again. Reading the fence takes a consistent read of the last batch and one
//! `TransactGetItems` of all that this batch wrote, so it never shows half of a batch. It fails while a batch
//! is in progress, and may be tried again. Scans are consistent queries.
//!
//! **Never early.** Only a write ends a record. Time to live, by which DynamoDB deletes items by its own
//! clock, is refused on every attribute of a record. No age is proven, so a new standby waits one TTL of its
//! own. The wall clock matters only for signatures: AWS refuses requests that are signed with a clock several
//! minutes off.
//!
//! **URL.** `dynamodb://region/table?option=value&…`. The region is required and never taken from elsewhere:
//! two processes with different regions would use two tables, and both would lead.
//!
//! | option | meaning |
//! |---|---|
//! | `endpoint=http://localhost:8000` | this address instead of AWS's own: DynamoDB Local, or a private network |
//! | `profile=payroll` | the profile of `~/.aws/config` with the credentials |
//! | `request_timeout=5s` | how long a request may take, from 100 ms to 60 s; default 2 s, half of it for connecting. Elections and documents wait a tenth of the TTL at most, so more helps only with TTLs above 20 s |
//!
//! All other settings come from the SDK's own chain, as in every program on AWS: credentials from the
//! environment, a profile, a web identity, or the role of the container or machine; `AWS_USE_FIPS_ENDPOINT`
//! and similar variables. `SSL_CERT_FILE` replaces the system's root certificates. `aws sso login` is not
//! built in. Expired credentials are fetched again within a request, so their provider must answer within an
//! attempt's time, a tenth of the TTL.
//!
//! **Permissions and costs** are in docs/storages/dynamodb.md. [`init_storage`](crate::init_storage) creates a
//! table that is paid per request. A table that you create yourself needs a partition key `pk` and a sort key
//! `cc`, both binary. Protect the table against deletion: a deleted table loses the epochs.
//!
//! **Errors.** A write that reached a server may have been applied, unless the server says that it was not.
//!
//! | error | of a write | of a read |
//! |---|---|---|
//! | no connection within half the request timeout: name, network or TLS | `NotApplied` | `Unavailable` |
//! | no credentials: wrong configuration, or their provider fails, takes too long or can't be reached | `NotApplied` | `Unavailable` |
//! | `ProvisionedThroughputExceeded`, `RequestLimitExceeded`, `Throttling` | `NotApplied` | `Unavailable` |
//! | `TransactionConflict` | `NotApplied` | – |
//! | `TransactionCanceled` with the reason `ConditionalCheckFailed` | refused | – |
//! | … with `ValidationError`, `ItemCollectionSizeLimitExceeded` | `Fatal` | `Fatal` |
//! | … with `AccessDenied`, `TransactionConflict`, `ThrottlingError`, `ProvisionedThroughputExceeded` | `NotApplied` | `Unavailable` |
//! | … with no known reason | `Unknown` | `Unavailable` |
//! | `AccessDenied`, `NotAuthorized`, `OptInRequired` | `NotApplied` | `Unavailable` |
//! | `UnrecognizedClient`, `InvalidSignature` (also of a wrong clock), `IncompleteSignature`, `MissingAuthenticationToken`, `ExpiredToken`, `RequestExpired` | `NotApplied` | `Unavailable` |
//! | `Validation`, `Serialization`, `UnknownOperation`, `InvalidEndpoint`, `ItemCollectionSizeLimitExceeded` | `Fatal` | `Fatal` |
//! | `ResourceNotFound`: the table was deleted | `Replaced` | `Replaced` |
//! | `ReplicatedWriteConflict`: the table became a global table | `Replaced` | – |
//! | HTTP status 500 and above, with any code | `Unknown` | `Unavailable` |
//! | no answer within the request timeout | `Unknown` | `Unavailable` |
//! | connection broken before the answer, or an answer that can't be read | `Unknown` | `Unavailable` |
//! | any other | `Unknown` | `Unavailable` |
//! | a malformed item, or a refusal whose item meets the condition | `Fatal` | `Fatal` |
//!
//! Opening fails for good without credentials, and with those that AWS rejects or denies.
//!
//! **Limits.** A global table is refused, because each region takes its own writes. A table that becomes
//! global later is noticed when two regions collide, or when it is opened again. A table that is restored
//! from a backup has a new name: until all candidates use it, the old table and the new one have a leader
//! each. Closing does not wait for the sockets: the library's tasks end moments later.

mod address;
mod errors;
mod open;
mod requests;
mod rows;

#[cfg(test)]
mod tests;

use crate::{
    drivers::{errors::Closed, errors::is_met},
    key::Partition,
    opening::OpenError,
    step::{Done, Shown, Step},
    sysvvm::{Description, Opened, Provenance, SysVvmStorage},
};
use address::Address;
use async_trait::async_trait;
use errors::{Damaged, DriverError};
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, WriteError,
};
pub(crate) use open::init;
use requests::{PEEKED_AT_ONCE, Requests};
use rows::MAX_ID_BYTES;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// A handle of a table, with connections of its own. Each verb is one request, sent once; a batch is one transaction.
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

    fn on(requests: Requests, location: String) -> Self {
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
        open::describe(&requests.client, &requests.table).await.map_err(DriverError::into_read_error)
    }

    async fn close(&self) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
