//! Driver `scylla`: ScyllaDB and Apache Cassandra, over CQL. docs/storages/cassandra.md has options, rights, costs and
//! traps. ScyllaDB was not tested; its documentation has every statement used here.
//!
//! **Records.** One partition per slot, whose static columns are the leader record. Each verb is one lightweight
//! transaction on it, linearized by `SERIAL`, as reads are, but not peeks. A release writes a marker over the record
//! and no tombstone, so that the epoch stays. A refusal shows only the columns that the condition names, so it names
//! all. The client library retries nothing. The server may lose a transaction to another, finish it nevertheless, and
//! answer with a refusal that shows our own version; elections treat that as a success.
//!
//! **Documents** are rows of their slot's partition. A batch is one conditional batch of CQL: a statement on the static
//! columns that compares epoch, incarnation and the number of the last batch, and one for each document, some with a
//! condition of their own. `batch_size_fail_threshold` does not apply: Cassandra and ScyllaDB measure only batches
//! without conditions. Each batch stores a random id with its number, by which a refusal that shows our own batch is
//! recognized. One case remains: a deposed leader may be told that its last batch was refused, although it landed
//! before its successor's claim, if the successor has written since. All reads are `SERIAL`.
//!
//! **Never early.** The driver uses no TTL of the server, and refuses a table that has one. No age is proven. No clock
//! matters: statements have no timestamp, and cells get their transaction's ballot, which is larger than those before.
//!
//! **Levels** are recorded with the table: two levels on one row do not see each other, and both could lead.
//!
//! **Errors.** A write that reached a server may have been applied, unless the server says that it did not begin.
//!
//! | error | of a write | of a read | reason |
//! |---|---|---|---|
//! | no connection to any node, or none free on it; no node to ask | `NotApplied` | `Unavailable` | nothing was sent |
//! | `Unprepared` (prepared again by the library, and forgotten again) | `NotApplied` | `Unavailable` | a node looks up a statement before it begins |
//! | a value that doesn't fit the column | `Fatal` | `Fatal` | nothing was sent, and the table is another program's |
//! | `SyntaxError`, `Invalid`, `ConfigError`, `AlreadyExists`, `ProtocolError` | `Fatal` | `Fatal` | checked before the statement begins: keyspace or table were dropped or altered |
//! | `AuthenticationError`, `Unauthorized` | `NotApplied` | `Unavailable` | checked before the statement begins; Cassandra also answers so if it can't read the rights from other nodes. Opening fails for good |
//! | the statement's id changed when it was prepared again | `Fatal` | `Fatal` | the table was altered; nothing was executed |
//! | no answer within the request timeout | `Unknown` | `Unavailable` | the request may still arrive; tests saw it applied later |
//! | connection broken before the answer | `Unknown` | `Unavailable` | the node may have begun |
//! | an answer that can't be read | `Unknown` | `Unavailable` | the node has executed something |
//! | `WriteTimeout` (contention is one, of type `Cas`), `WriteFailure`, `CAS_WRITE_UNKNOWN` (0x1700) | `Unknown` | `Unavailable` | some replicas may have accepted it, and a later transaction then finishes it |
//! | `ReadTimeout`, `ReadFailure` | `Unknown` | `Unavailable` | a transaction reads after an earlier round of it may have been accepted |
//! | `Unavailable` (no quorum), `Overloaded` | `Unknown` | `Unavailable` | raised at the beginning, but also at the commit |
//! | `IsBootstrapping`, `TruncateError`, `RateLimitReached`, `FunctionFailure`, `ServerError`, any other | `Unknown` | `Unavailable` | the time of the error is unknown |
//! | applied, with a malformed row | – | `Fatal` | another program writes to the table |
//! | refused, with a malformed row | `Fatal` | – | the same |
//! | a batch of documents that is refused, with its own id in the row | applied | – | it lost, and another transaction finished it |
//!
//! **Closing** ends the library's tasks and sockets after running calls; it waits 5 s for a call that is not polled.

mod config;
mod connection;
mod opening;
mod rows;
mod schema;
mod statements;

use crate::{
    drivers::errors::{Closable, of_read},
    key::Partition,
    opening::{OpenError, OpenErrorKind},
    step::{CurrentState, Step, StepOutcome},
    sysvvm::{Description, OpenedStorage, Provenance, SysVvmStorage},
};
use ::scylla::{
    client::session::Session,
    errors::{BadQuery, DbError, ExecutionError, PrepareError, RequestAttemptError},
};
use async_trait::async_trait;
use config::Address;
pub use config::OpenOptions;
use connection::LibraryTasksEnd;
use futures_util::future::join_all;
use ielections::{
    Document, DocumentId, DocumentLimits, Entropy as _, FenceState, Limits, OsEntropy, Page, ReadError, Scan,
    Slot, WriteError,
};
pub(crate) use opening::init;
pub use statements::Levels;
use statements::{MAX_PAGE, Statements};
use std::{error::Error, sync::Arc, time::Duration};

/// A handle of a keyspace.
#[derive(Debug)]
pub struct ScyllaStorage {
    statements: Closable<Arc<Statements>>,
    /// `None` for a session of the caller, which ends it.
    ending: Option<LibraryTasksEnd>,
    address: Address,
    entropy: OsEntropy,
}

impl ScyllaStorage {
    /// Connects to the keyspace that `url` names, and checks its table. Creates nothing.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let address = Address::parse(url)?;
        let (statements, ending) = opening::open(&address).await?;
        Ok(Self::new(statements, Some(ending), address))
    }

    /// Uses the caller's own session, and checks keyspace and table as [`open`](Self::open) does.
    ///
    /// Each statement of this handle has an execution profile of its own. It takes the load balancing of the session, if
    /// the levels are global. It replaces retries and speculative executions by none, consistencies by those of the
    /// levels, and the time limit by that of `options`. The session needs the metadata of the keyspace, and keepalives, so
    /// that a silent node is left out. [`close`](SysVvmStorage::close) leaves it open.
    /// [`init_storage`](crate::init_storage) creates the table, by a URL.
    ///
    /// # Errors
    /// See [`OpenError`]. A session without metadata of the keyspace is a misuse.
    ///
    /// # Cancel safety
    /// As [`open`](Self::open).
    ///
    /// # Examples
    /// ```no_run
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// use scylla::client::session_builder::SessionBuilder;
    /// use std::sync::Arc;
    /// use vvm_storage::scylla::{OpenOptions, ScyllaStorage};
    ///
    /// let session = Arc::new(SessionBuilder::new().known_node("db1:9042").build().await?);
    /// let storage = ScyllaStorage::open_with(session, "elections", OpenOptions::default()).await?;
    /// # drop(storage);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open_with(
        session: Arc<Session>,
        keyspace: &str,
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        let address = Address::of_session(&session, keyspace, options)?;
        Ok(Self::new(opening::open_on(session, &address).await?, None, address))
    }

    fn new(statements: Statements, ending: Option<LibraryTasksEnd>, address: Address) -> Self {
        let statements = Closable::new(Arc::new(statements));
        Self { statements, ending, address, entropy: OsEntropy::default() }
    }

    async fn carry_out(
        &self,
        statements: &Statements,
        at: &Partition,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        let mut id = [0; 16];
        if matches!(step, Step::Batch { .. }) {
            self.entropy.fill(&mut id);
        }
        let columns = statements.step(at.as_bytes(), step, &id).await?;
        if columns.applied()? {
            return Ok(StepOutcome::Applied);
        }
        Ok(match step {
            Step::Claim { .. } | Step::Renew { .. } | Step::Release { .. } => {
                StepOutcome::Refused(columns.slot()?.into())
            }
            // The server may lose ours to a transaction that then finishes it, and refuse it when it tries again.
            Step::Batch { .. } if columns.last_batch_is(&id)? => StepOutcome::Applied,
            Step::Batch { .. } => StepOutcome::Refused(CurrentState::Nothing),
            Step::Settle { .. } => StepOutcome::Refused(CurrentState::Setting(
                columns.setting()?.ok_or_else(|| DecodeError("a setting without a value".into()))?,
            )),
        })
    }
}

#[async_trait]
impl SysVvmStorage for ScyllaStorage {
    fn limits(&self) -> Limits {
        Limits {
            // An attempt may take a tenth of it: four round trips of a transaction between data centres, 50 ms each.
            min_ttl: Duration::from_secs(2),
            // CQL's limit is 65,535 bytes. This one is lower, because the server keeps keys in memory.
            max_key_bytes: 16 << 10,
            max_value_bytes: 16 << 10,
            // One read for each slot, all sent at once: a twentieth of what one connection takes.
            scan_batch: 100,
        }
    }

    fn opened(&self) -> Option<OpenedStorage> {
        Some(OpenedStorage::at(self.address.to_string(), Provenance::Existing))
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        let statements = self.statements.get()?;
        self.carry_out(&statements, &at, &step).await.map_err(DriverError::into_write_error)
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        let answer = self.statements.get()?.read(at.as_bytes()).await;
        answer.and_then(|columns| Ok(columns.slot()?)).map_err(DriverError::into_read_error)
    }

    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError> {
        let mut seen = vec![None; at.len()];
        self.peek_some(at, &mut seen).await?;
        // Without an error, none is missing.
        Ok(seen.into_iter().flatten().collect())
    }

    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        let statements = self.statements.get()?;
        // Each slot is read from nodes of its own. A node that fails or hangs affects only its slots.
        let reads = at.iter().zip(seen).map(async |(at, seen)| {
            *seen = Some(statements.peek(at.as_bytes()).await?.slot()?);
            Ok(())
        });
        let outcomes = join_all(reads).await;
        outcomes.into_iter().collect::<Result<(), DriverError>>().map_err(DriverError::into_read_error)
    }

    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError> {
        let answer = self.statements.get()?.setting(at.as_bytes()).await;
        answer.and_then(|columns| Ok(columns.setting()?)).map_err(DriverError::into_read_error)
    }

    fn document_limits(&self) -> Option<DocumentLimits> {
        Some(DocumentLimits {
            // CQL's limit is 65,535; the server keeps them in an index.
            max_id_bytes: 1 << 10,
            // Cassandra and ScyllaDB allow half a segment of the commit log, 16 MiB or more. But a transaction sends
            // its batch to each replica twice, and renewals wait for it. 1 MiB takes less than 0.1 s.
            max_batch_bytes: 1 << 20,
            max_body_bytes: 64 << 10,
            max_batch: 256,
            max_page: MAX_PAGE.into(),
        })
    }

    async fn fence_state(&self, at: &Partition) -> Result<FenceState, ReadError> {
        let answer = self.statements.get()?.read(at.as_bytes()).await;
        let state =
            answer.and_then(|columns| Ok(FenceState { slot: columns.slot()?, last: columns.last_batch()? }));
        state.map_err(DriverError::into_read_error)
    }

    async fn document(&self, at: &Partition, id: &DocumentId) -> Result<Option<Document>, ReadError> {
        self.statements.get()?.document(at.as_bytes(), id).await.map_err(DriverError::into_read_error)
    }

    async fn scan_documents(&self, at: &Partition, scan: &Scan) -> Result<Page, ReadError> {
        self.statements.get()?.scan_documents(at.as_bytes(), scan).await.map_err(DriverError::into_read_error)
    }
    async fn describe(&self) -> Result<Description, ReadError> {
        let statements = self.statements.get()?;
        opening::describe(&statements.session, &self.address).await.map_err(DriverError::into_read_error)
    }

    async fn close(&self) {
        self.statements.close();
        if let Some(ending) = self.ending.clone() {
            ending.wait().await;
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RequestOutcome {
    NotBegun,
    /// No server has begun it: it denies the login or the right, or could not read them from other nodes.
    Denied,
    /// No server has begun it, and none will until its cause is removed.
    Refused,
    Unknown,
}

#[derive(Debug, thiserror::Error)]
enum DriverError {
    #[error("{}", describe(.0))]
    Failed(#[source] Box<ExecutionError>),
    #[error(transparent)]
    Damaged(#[from] DecodeError),
    #[error(transparent)]
    Unreadable(Box<dyn Error + Send + Sync>),
}

fn describe(cause: &ExecutionError) -> String {
    match cause {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, words)) => match error {
            DbError::Unavailable { required, alive, .. } => format!(
                "no quorum: {required} copies must answer, and the nodes of {alive} are up. Start the others"
            ),
            DbError::Unauthorized => format!("{words}: GRANT SELECT and MODIFY on the keyspace"),
            DbError::Invalid => format!(
                "{words}: keyspace or table were dropped or altered. `vvm init-storage` creates what is missing"
            ),
            _ => cause.to_string(),
        },
        ExecutionError::RequestTimeout(after) => {
            let after = vvm_clock::DisplayDuration(*after);
            format!("no answer within {after}: nodes hang, are overloaded, or can't reach each other")
        }
        ExecutionError::EmptyPlan | ExecutionError::ConnectionPoolError(_) => format!(
            "no node can be reached: start the nodes, check the network, or restart this process if its \
             certificate or password was renewed since its start ({cause})"
        ),
        _ => cause.to_string(),
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the table has a row that no election wrote: {0}. Stop all candidates, and find the program that writes \
     to it"
)]
struct DecodeError(pub(super) String);

impl From<ExecutionError> for DriverError {
    fn from(error: ExecutionError) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl DriverError {
    fn into_write_error(self) -> WriteError {
        let outcome = match &self {
            Self::Failed(error) => outcome(error),
            // Only a refusal has a row.
            Self::Damaged(_) => RequestOutcome::Refused,
            Self::Unreadable(_) => RequestOutcome::Unknown,
        };
        match outcome {
            RequestOutcome::NotBegun | RequestOutcome::Denied => WriteError::NotApplied(self.into()),
            RequestOutcome::Refused => WriteError::Fatal(self.into()),
            RequestOutcome::Unknown => WriteError::Unknown(self.into()),
        }
    }

    fn into_read_error(self) -> ReadError {
        of_read(self.into_write_error())
    }
}

/// (I7) Every error that is not listed is `Unknown`. A request is sent once, so the error is that of the only attempt.
fn outcome(error: &ExecutionError) -> RequestOutcome {
    match error {
        ExecutionError::EmptyPlan
        | ExecutionError::ConnectionPoolError(_)
        | ExecutionError::PrepareError(_) => RequestOutcome::NotBegun,
        ExecutionError::BadQuery(
            BadQuery::SerializationError(_)
            | BadQuery::PartitionKeyExtraction
            | BadQuery::ValuesTooLongForKey(..),
        ) => RequestOutcome::Refused,
        ExecutionError::LastAttemptError(error) => of_attempt(error),
        _ => RequestOutcome::Unknown,
    }
}

fn of_preparing(error: &PrepareError) -> OpenError {
    let text = format!("the cluster refuses a statement: {error}");
    match error {
        PrepareError::AllAttemptsFailed { first_attempt }
            if matches!(of_attempt(first_attempt), RequestOutcome::Denied | RequestOutcome::Refused) =>
        {
            OpenError::refused(text)
        }
        _ => OpenError::passing(text),
    }
}

/// A node that says `Invalid` lacks keyspace, table or column, perhaps only in memory.
fn of_opening(cause: &ExecutionError) -> OpenError {
    match cause {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Unauthorized, why)) => {
            OpenError::refused(format!("this user lacks a right: {why}"))
        }
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, words))
            if matches!(outcome(cause), RequestOutcome::Denied | RequestOutcome::Refused) =>
        {
            let is_missing = matches!(error, DbError::Invalid);
            let kind = if is_missing { OpenErrorKind::Missing } else { OpenErrorKind::Refused };
            OpenError::new(kind, format!("the cluster refuses: {words}"))
        }
        _ => {
            let is_refused = outcome(cause) == RequestOutcome::Refused;
            let kind = if is_refused { OpenErrorKind::Refused } else { OpenErrorKind::Passing };
            OpenError::new(kind, format!("the cluster did not answer: {cause}. Try again"))
        }
    }
}

fn of_attempt(error: &RequestAttemptError) -> RequestOutcome {
    match error {
        RequestAttemptError::UnableToAllocStreamId => RequestOutcome::NotBegun,
        RequestAttemptError::SerializationError(_)
        | RequestAttemptError::CqlRequestSerialization(_)
        | RequestAttemptError::RepreparedIdChanged { .. } => RequestOutcome::Refused,
        RequestAttemptError::DbError(error, _) => of_server(error),
        _ => RequestOutcome::Unknown,
    }
}

fn of_server(error: &DbError) -> RequestOutcome {
    match error {
        DbError::Unprepared { .. } => RequestOutcome::NotBegun,
        DbError::SyntaxError
        | DbError::Invalid
        | DbError::ConfigError
        | DbError::AlreadyExists { .. }
        | DbError::ProtocolError => RequestOutcome::Refused,
        DbError::AuthenticationError | DbError::Unauthorized => RequestOutcome::Denied,
        _ => RequestOutcome::Unknown,
    }
}

#[cfg(test)]
mod tests;
