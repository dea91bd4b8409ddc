//! Driver `dynamodb`: a table of Amazon DynamoDB. docs/storages/dynamodb.md has URL, rights, costs and traps.
//!
//! **Records.** One partition per slot, whose first item is the leader record. Each verb that writes is one conditional
//! `UpdateItem`, whose refusal contains the present item (`ReturnValuesOnConditionCheckFailure`). Reads are consistent;
//! `peek` is not, and costs half. A release keeps the epoch. The retries of the client library are off: the second copy
//! of an applied update would be refused because of the first.
//!
//! **Documents** are items of their slot's partition. A batch is one `TransactWriteItems`: a `ConditionCheck` of the
//! leader record (epoch and incarnation), an update of the item with the number and the ids of the last batch, and a
//! put or delete for each document. While it runs, a renewal or claim of the slot is refused as a conflict, and vice
//! versa; a conflict changes nothing. Reading the fence takes a consistent read of the last batch and one
//! `TransactGetItems` of all that this batch wrote, so it never shows half of a batch.
//!
//! **Credentials** come from the SDK's own chain. Those that expired or were refused are fetched within a request.
//!
//! **Errors.** A write that reached a server may have been applied, unless the server says that it was not.
//!
//! | error | of a write | of a read |
//! |---|---|---|
//! | no connection within half the request timeout: name, network or TLS | `NotApplied` | `Unavailable` |
//! | no credentials: wrong configuration, or their provider fails, takes too long or can't be reached | `NotApplied` | `Unavailable` |
//! | `ProvisionedThroughputExceeded`, `RequestLimitExceeded`, `Throttling`, `LimitExceeded` | `NotApplied` | `Unavailable` |
//! | `TransactionConflict` | `NotApplied` | – |
//! | `TransactionCanceled` with the reason `ConditionalCheckFailed` | refused | – |
//! | … with `ValidationError`, `ItemCollectionSizeLimitExceeded`, `DuplicateItem` | `Fatal` | `Fatal` |
//! | … with `AccessDenied`, `TransactionConflict`, `ThrottlingError`, `ProvisionedThroughputExceeded`, `RequestLimitExceeded` | `NotApplied` | `Unavailable` |
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

mod config;
mod connection;
mod opening;
mod requests;
mod rows;

use crate::{
    drivers::errors::{self, Closable, HandleClosed, chain, described, is_met, never_connected},
    key::Partition,
    opening::OpenError,
    step::{CurrentState, Step, StepOutcome},
    sysvvm::{Description, OpenedStorage, Provenance, SysVvmStorage},
};
use async_trait::async_trait;
use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::{
    Client,
    config::http::HttpResponse,
    error::{BuildError, ConnectorError, ProvideErrorMetadata, SdkError},
    types::CancellationReason,
};
use config::Address;
pub use config::OpenOptions;
use connection::{client, configuration, sent_once};
use ielections::{
    Document, DocumentId, DocumentLimits, FenceState, Limits, Page, ReadError, Scan, Slot, WriteError,
};
pub(crate) use opening::init;
use requests::{PEEKED_AT_ONCE, Requests};
use rows::MAX_ID_BYTES;
use std::{error::Error, sync::Arc, time::Duration};

/// A handle of a table, with connections of its own. Each verb is one request, sent once; a batch is one transaction.
#[derive(Debug)]
pub struct DynamoDbStorage {
    requests: Closable<Arc<Requests>>,
    location: String,
}

impl DynamoDbStorage {
    /// Opens the table that `url` names, and checks it. Creates nothing.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let address = Address::parse(url)?;
        let configuration = configuration(&address).await?;
        Self::on(client(&configuration, &address), &address).await
    }

    /// Opens `table` with a copy of the caller's own client, and checks it as [`open`](Self::open) does.
    ///
    /// The copy has the client's credentials, endpoint, region and HTTP client. It replaces retries by none, because the
    /// second copy of an applied update would be refused, and time limits by those of `options`. Credentials are loaded
    /// within a request: a provider that is slower than the request timeout needs a cache of its own.
    /// [`init_storage`](crate::init_storage) creates the table, by a URL.
    ///
    /// # Errors
    /// See [`OpenError`]. A client without a region is a misuse.
    ///
    /// # Cancel safety
    /// As [`open`](Self::open).
    ///
    /// # Examples
    /// ```no_run
    /// # async fn open() -> Result<(), vvm_storage::OpenError> {
    /// use vvm_storage::dynamodb::{DynamoDbStorage, OpenOptions};
    ///
    /// let shared = aws_config::load_defaults(aws_config::BehaviorVersion::latest()).await;
    /// let client = aws_sdk_dynamodb::Client::new(&shared);
    /// let storage = DynamoDbStorage::open_with(&client, "elections", OpenOptions::default()).await?;
    /// # drop(storage);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open_with(client: &Client, table: &str, options: OpenOptions) -> Result<Self, OpenError> {
        let address = Address::of_client(client, table, options)?;
        Self::on(sent_once(client.config().to_builder(), address.request_timeout), &address).await
    }

    async fn on(client: Client, address: &Address) -> Result<Self, OpenError> {
        opening::check(&client, address).await?;
        Ok(Self::new(client, address))
    }

    fn new(client: Client, address: &Address) -> Self {
        let requests = Arc::new(Requests::new(client, address.table.clone()));
        Self { requests: Closable::new(requests), location: address.to_string() }
    }

    async fn ask<T>(
        &self,
        call: impl AsyncFnOnce(&Requests) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let requests = self.requests.get()?;
        let answer = call(&requests).await;
        if let Err(DriverError::Credentials(_)) = &answer {
            self.requests.replace(&requests, || requests.without_cached_credentials());
        }
        answer
    }

    async fn read_with<T>(
        &self,
        call: impl AsyncFnOnce(&Requests) -> Result<T, DriverError>,
    ) -> Result<T, ReadError> {
        self.ask(call).await.map_err(DriverError::into_read_error)
    }
}

async fn carry_out(requests: &Requests, at: &[u8], step: &Step) -> Result<StepOutcome, DriverError> {
    let update = requests.update(at);
    let update = match step {
        Step::Claim { from, to } => requests::claim(update, from, to),
        Step::Renew { from, to } => requests::renewal(update, from, to),
        Step::Release { incarnation, epoch } => requests::release(update, *incarnation, *epoch),
        Step::Settle { value } => requests::settle(update, value),
        Step::Batch { fence, writes } => return requests.write_documents(at, fence, writes).await,
    };
    let Some(item) = requests.unless_refused(update).await? else { return Ok(StepOutcome::Applied) };
    if let Step::Settle { .. } = step {
        let stands = rows::setting(item.as_ref())?.ok_or_else(DecodeError::unexplained_refusal)?;
        return Ok(StepOutcome::Refused(CurrentState::Setting(stands)));
    }
    match rows::slot(item.as_ref())? {
        stands if is_met(step, &stands) => Err(DecodeError::unexplained_refusal().into()),
        stands => Ok(StepOutcome::Refused(stands.into())),
    }
}

#[async_trait]
impl SysVvmStorage for DynamoDbStorage {
    fn limits(&self) -> Limits {
        Limits {
            // An attempt, a tenth of it, has time for a write and a new connection.
            min_ttl: Duration::from_secs(2),
            max_key_bytes: 2048,
            // DynamoDB takes 400 KB; a write costs one unit for each KB.
            max_value_bytes: 16 << 10,
            scan_batch: PEEKED_AT_ONCE,
        }
    }

    fn opened(&self) -> Option<OpenedStorage> {
        Some(OpenedStorage::at(self.location.clone(), Provenance::Existing))
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        let done = self.ask(async |requests| carry_out(requests, at.as_bytes(), &step).await);
        done.await.map_err(DriverError::into_write_error)
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        self.read_with(async |requests| Ok(rows::slot(requests.read(at.as_bytes()).await?.as_ref())?)).await
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let peeked = self.read_with(async |requests| {
            let mut slots = Vec::with_capacity(at.len());
            for at in at.chunks(PEEKED_AT_ONCE) {
                let items = requests.peek(at).await?;
                for at in at {
                    slots.push(rows::slot(items.get(at.as_bytes()))?);
                }
            }
            Ok(slots)
        });
        peeked.await
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        self.read_with(async |requests| Ok(rows::setting(requests.read(at.as_bytes()).await?.as_ref())?))
            .await
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
        self.read_with(async |requests| requests.fence_state(at.as_bytes()).await).await
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.read_with(async |requests| requests.document(at.as_bytes(), id).await).await
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        self.read_with(async |requests| requests.scan_documents(at.as_bytes(), scan).await).await
    }

    async fn describe(&self) -> Result<Description, ReadError> {
        self.read_with(async |requests| opening::describe(&requests.client, &requests.table).await).await
    }

    async fn close(&self) {
        self.requests.close();
    }
}

#[derive(Debug, thiserror::Error)]
enum DriverError {
    #[error("no connection to DynamoDB: {0}")]
    NotSent(String),
    #[error(
        "no AWS credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role of \
         the machine or container ({0})"
    )]
    NoCredentials(String),
    #[error("AWS rejects these credentials: renew or correct them, and check the machine's clock ({0})")]
    Credentials(String),
    #[error("AWS denies the request: allow it in the policy of these credentials ({0})")]
    Denied(String),
    #[error(
        "the table was deleted: before you create another one, find out why, and restore its records ({0})"
    )]
    NoTable(String),
    #[error(
        "the table became a global table: two regions would have two leaders; use a table of one region ({0})"
    )]
    Global(String),
    #[error(
        "DynamoDB refuses the request: another program created the table, or the endpoint is not DynamoDB \
         ({0})"
    )]
    Refused(String),
    #[error("DynamoDB throttles requests: raise the table's or the account's limits ({0})")]
    Throttled(String),
    #[error("a transaction was writing to the item ({0})")]
    Conflict(String),
    #[error("DynamoDB did not confirm the request: {0}")]
    Unanswered(String),
    #[error(transparent)]
    Damaged(#[from] DecodeError),
    #[error(transparent)]
    Closed(#[from] HandleClosed),
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum DecodeError {
    #[error(
        "another program wrote an item of the table: {0}. Stop all candidates, and find the program that \
         writes to the table"
    )]
    Foreign(String),
    #[error(
        "an item of the table has format {found}, and this version knows formats up to {known}: use the \
         newer version"
    )]
    Newer { found: u32, known: u32 },
}

impl DecodeError {
    /// Versions of DynamoDB before 2023 show no item, and look the same.
    fn unexplained_refusal() -> Self {
        Self::Foreign("a write was refused although the item shown meets its condition".into())
    }
}

type ErrorKind = fn(String) -> DriverError;

impl DriverError {
    fn into_write_error(self) -> WriteError {
        match self {
            // Credentials are fetched anew, a clock and a policy corrected. An unreachable provider looks like none.
            Self::NotSent(_)
            | Self::NoCredentials(_)
            | Self::Credentials(_)
            | Self::Denied(_)
            | Self::Throttled(_)
            | Self::Conflict(_) => WriteError::NotApplied(self.into()),
            // A write gets an item only with its refusal, and a refused write was not applied.
            Self::Refused(_) | Self::Damaged(_) | Self::Closed(_) => WriteError::Fatal(self.into()),
            // The table existed at opening. Another one may replace it, or another region write beside this one (I1).
            Self::NoTable(_) | Self::Global(_) => WriteError::Replaced(self.into()),
            Self::Unanswered(_) => WriteError::Unknown(self.into()),
        }
    }

    fn into_read_error(self) -> ReadError {
        errors::of_read(self.into_write_error())
    }

    fn of_building(error: &BuildError) -> Self {
        Self::Refused(error.to_string())
    }

    /// Maps an error of the client library. What is not certain is unknown (I7), kinds that later versions add
    /// included. A request is sent once, so the error is never that of a second attempt.
    fn of<E>(error: SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let said = said(&error);
        match &error {
            SdkError::ConstructionFailure(_) => Self::Refused(said),
            SdkError::DispatchFailure(failure) => match failure.as_connector_error() {
                Some(error) => Self::of_connection(error, said),
                None => Self::Unanswered(said),
            },
            SdkError::ServiceError(answer) if answer.raw().status().is_server_error() => {
                Self::Unanswered(said)
            }
            SdkError::ServiceError(answer) => Self::of_code(answer.err().code().unwrap_or_default(), said),
            _ => Self::Unanswered(said),
        }
    }

    /// If the credentials could not be fetched, our request was not sent.
    fn of_connection(error: &ConnectorError, said: String) -> Self {
        if let Some(error) = chain(error).find_map(|error| error.downcast_ref::<CredentialsError>()) {
            return match error {
                CredentialsError::CredentialsNotLoaded(_) | CredentialsError::InvalidConfiguration(_) => {
                    Self::NoCredentials(said)
                }
                _ => Self::NotSent(said),
            };
        }
        if never_connected(error) { Self::NotSent(said) } else { Self::Unanswered(said) }
    }

    /// Each action has a reason; `None` means that the action was in order. Returns `None` if a condition failed.
    fn of_cancellation(reasons: &[CancellationReason], said: String) -> Option<Self> {
        let contains = |codes: &[&str]| {
            reasons.iter().filter_map(CancellationReason::code).any(|code| codes.contains(&code))
        };
        if contains(&["ConditionalCheckFailed"]) {
            return None;
        }
        let kinds: [(&[&str], ErrorKind); 4] = [
            (&["AccessDenied"], Self::Denied),
            (&["ValidationError", "ItemCollectionSizeLimitExceeded", "DuplicateItem"], Self::Refused),
            (&["TransactionConflict"], Self::Conflict),
            (&["ProvisionedThroughputExceeded", "ThrottlingError", "RequestLimitExceeded"], Self::Throttled),
        ];
        let found = kinds.into_iter().find(|(codes, _)| contains(codes));
        Some(found.map_or(Self::Unanswered as ErrorKind, |(_, kind)| kind)(said))
    }

    fn of_code(code: &str, said: String) -> Self {
        match code {
            "ProvisionedThroughputExceededException"
            | "RequestLimitExceeded"
            | "ThrottlingException"
            | "Throttling"
            // Too many tables are being created at the same time.
            | "LimitExceededException" => Self::Throttled(said),
            "TransactionConflictException" => Self::Conflict(said),
            "ReplicatedWriteConflictException" => Self::Global(said),
            "ResourceNotFoundException" => Self::NoTable(said),
            "AccessDeniedException" | "NotAuthorized" | "OptInRequired" => Self::Denied(said),
            "UnrecognizedClientException"
            | "InvalidClientTokenId"
            | "InvalidSignatureException"
            | "IncompleteSignature"
            | "IncompleteSignatureException"
            | "MissingAuthenticationToken"
            | "MissingAuthenticationTokenException"
            | "ExpiredToken"
            | "ExpiredTokenException"
            | "RequestExpired" => Self::Credentials(said),
            "ValidationException"
            | "ValidationError"
            | "SerializationException"
            | "UnknownOperationException"
            | "InvalidEndpointException"
            | "ItemCollectionSizeLimitExceededException" => Self::Refused(said),
            _ => Self::Unanswered(said),
        }
    }
}

/// Returns the server's code and message, or else the library's whole chain of errors: the outermost error says least.
fn said<E>(error: &SdkError<E, HttpResponse>) -> String
where
    E: ProvideErrorMetadata + Error + 'static,
{
    if let SdkError::ServiceError(answer) = error {
        let status = answer.raw().status();
        return match (answer.err().code(), answer.err().message()) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            (Some(code), None) => code.to_owned(),
            (None, _) => format!("HTTP status {status} without a DynamoDB error code"),
        };
    }
    described(error)
}

#[cfg(test)]
mod tests;
