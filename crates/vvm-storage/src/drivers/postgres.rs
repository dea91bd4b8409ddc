//! Driver `postgres`: a schema in a database of PostgreSQL, 13 or later. docs/storages/postgres.md has options, rights,
//! fail-overs as an operator sees them, and traps.
//!
//! **How the contract is kept.** One row per slot in table `sysvvm.leader`, which stays when the slot is released. A
//! verb is one prepared statement, which writes the row if it is in the state expected. Behind a pooler, after a
//! refusal and after a fail-over it is one message with several statements, which the server carries out as one
//! transaction: it locks and shows the row, writes it, and shows the history of the database. No write is sent twice,
//! and the server never waits for us within a transaction. `synchronous_commit` is `on` for each write. A wait for a
//! lock ends after a tenth of the TTL, else the request timeout. No age is proven; times of writes are for people.
//!
//! **Documents** are rows of their own. A batch locks the leader record, compares epoch, incarnation and the count of
//! batches, and writes all rows with one statement.
//!
//! **Reads.** `read` and `fence_state` lock the row that they show, so that their transaction waits for synchronous
//! standbys as a write does. A plain read would show what a cancelled wait left on the primary alone. `peek` is plain.
//!
//! **Notifications.** After a release or a request, `NOTIFY` is sent in a transaction of its own, whose answer is not
//! awaited. Candidates listen on the connection with which they look, all topics of a handle on one. Only a connection
//! whose login was answered by the process that carries out its requests listens: behind a pooler, none does.
//!
//! **After a fail-over.** An asynchronous standby that is promoted has forgotten the last writes: a claim whose leader
//! is at work, a renewal, an epoch. So each write names its history: system identifier, timeline, and a random
//! *witness*, which tells two standbys apart that were promoted independently. A change of any is a new history:
//!
//! - A renewal, release or batch of the old history is `Replaced`: the leader is lost at once. A connection ends with
//!   its server, so identifier and timeline are compared once on it, witness and server process by each write.
//! - The first candidate that sees the new history *adopts* it, with all slots: each is held by a record under which
//!   nothing leads. Its version is new, so observations begin anew. Its TTL is the largest that a claim may have, so
//!   forgotten leaders have ended before a take-over (I1). Its epoch is at least the server's unix milliseconds plus
//!   one day for each timeline, which exceeds forgotten ones (I2). A slot without a row gets one at its first claim.
//!
//! The largest TTL is the largest of three: what the promoted server has as `max_ttl`, what this handle saw before, and
//! `max_ttl` of its URL. A handle that knows a larger one adopts the history once more, and all slots wait anew.
//!
//! Epochs rise over a fail-over if their clocks fit into that day. A claim by a process whose wall clock is 12 h or
//! more from the server's is refused; the clocks of the old and the new server may differ by the other 12 h. Two
//! standbys that are promoted independently have the same timeline, so both may give out one epoch, and the witness
//! alone refuses one's writes on the other. A synchronous standby has forgotten nothing, but can't be told apart.
//!
//! **Errors.** A request is one transaction.
//!
//! | what went wrong | to a write | to a read | because |
//! |---|---|---|---|
//! | no connection: network, a server that starts or is a standby, not within half the request timeout; 53300 no connection left; certificate, user, password or database refused; a server without TLS; `fsync`, `synchronous_commit` | `NotApplied` | `Unavailable` | nothing was sent. Opening fails for good at what is refused |
//! | severity ERROR, 42501 (no permission) | `NotApplied` | `Unavailable` | rolled back; the right may be given back. Opening fails for good |
//! | severity ERROR, class 0A, 22, 23, 28, 42 (wrong statement or data) | `Fatal` | `Fatal` | rolled back, and will be again |
//! | severity ERROR, 42P01 or 3F000: schema or table are missing | `Replaced` | `Replaced` | they were there when it was opened |
//! | severity ERROR, class 25, 40, 53, 54 or 55 (25006 read-only, 40P01 deadlock, 55P03 lock timeout), or 57014 cancelled | `NotApplied` | `Unavailable` | rolled back |
//! | severity ERROR, any other (40003; 08, 58 and XX of a pooler that lost its server) | `Unknown` | `Unavailable` | the commit may have been sent before |
//! | severity FATAL or PANIC (57P01, or a pooler that lost its server), or one that is not known | `Unknown` | `Unavailable` | it may come after the commit |
//! | success with a warning (01000: the wait for a standby was cancelled), but not that ids run out | `Unknown` | `Unavailable` | committed, perhaps on the primary alone |
//! | connection broken, or no answer within the request timeout | `Unknown` | `Unavailable` | the server may have begun |
//! | another history, to a renewal, release or batch | `Replaced` | – | nothing was written, and another leader may be at work |
//! | an earlier timeline of the same system: an old primary runs again | `NotApplied` | `Unavailable` | nothing was written; the leader's record is on another host |
//! | this machine's clock 12 h or more from the server's, at a claim | `NotApplied` | – | nothing was written |
//! | another history, to a claim | refused | adopted, and read again | nothing was written |
//! | a row that makes no sense | `Fatal` | `Fatal` | another program writes to the schema |
//!
//! **What it can't do.** A server that is restored by copying its files, without a new timeline, shows old epochs under
//! an unchanged history. If the schema is created anew while leaders are at work, a new leader may begin before they
//! notice. Without an answer from synchronous standbys a commit waits in the server, one connection for each record:
//! later writes give up at its lock. It is not cancelled, since a cancelled wait keeps the write on the primary alone.

mod backend_process;
mod config;
mod connection;
mod hints;
mod history;
mod opening;
mod rows;
mod statements;

use crate::{
    drivers::sql::{
        connection::{ConnectionPool, Server as _},
        driver::{Driver, SqlStorage},
        errors::DriverError,
        history::Lineage,
        opening::Purpose,
        rows::StatementResults,
    },
    key::Partition,
    opening::OpenError,
    sysvvm::SysVvmHints,
};
use async_trait::async_trait;
pub use config::OpenOptions;
use config::Postgres;
use connection::Session;
use std::time::Duration;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// A handle on a database: connections of its own.
pub type PostgresStorage = SqlStorage<Postgres, Session>;

impl PostgresStorage {
    /// Connects to the database that `url` names, and checks server and schema, and that the login may write. Creates nothing.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::opened(Postgres::at(url)?, Purpose::Lead).await
    }

    /// As [`open`](Self::open), errors and cancel safety too, for a login that may only read. Its `read` needs UPDATE.
    pub async fn open_read_only(url: &str) -> Result<Self, OpenError> {
        Self::opened(Postgres::at(url)?, Purpose::Look).await
    }

    /// Connects as the caller's own `config` says, and checks server and schema as [`open`](Self::open) does.
    ///
    /// The handle makes its connections itself, one at a time from the list of hosts, a Unix socket among them, and sends
    /// each write once. It replaces `connect_timeout` by half the request timeout, `load_balance_hosts` by the order of the
    /// hosts, `target_session_attrs` by its check, and keepalives by its own. With `tls`, every connection is encrypted;
    /// without, none is. [`init_storage`](crate::init_storage) creates the schema, by a URL.
    ///
    /// # Errors
    /// See [`OpenError`]. A `config` that can't be kept is a misuse.
    ///
    /// # Cancel safety
    /// As [`open`](Self::open).
    ///
    /// # Examples
    /// ```no_run
    /// # async fn open(password: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// use vvm_storage::postgres::{OpenOptions, PostgresStorage};
    ///
    /// let mut config: tokio_postgres::Config = "host=/run/postgresql user=payroll dbname=payroll".parse()?;
    /// config.password(password);
    /// let storage = PostgresStorage::open_with(&config, None, OpenOptions::default()).await?;
    /// # drop(storage);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open_with(
        config: &tokio_postgres::Config,
        tls: Option<rustls::ClientConfig>,
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        Self::opened(Postgres::of_config(config, tls, options)?, Purpose::Lead).await
    }
}

impl Driver for Postgres {
    const READS_ALONE: bool = true;

    async fn send_single(
        connections: &ConnectionPool<Self, Session>,
        statement: &Self::Statement<'_>,
        history: &Lineage,
        lock_timeout: Duration,
    ) -> Result<Option<StatementResults>, DriverError> {
        connections.execute(statement, history, lock_timeout).await
    }

    fn hints(storage: &PostgresStorage) -> Option<&dyn SysVvmHints> {
        Some(storage)
    }
}

#[async_trait]
impl SysVvmHints for PostgresStorage {
    async fn announce(&self, topic: &Partition) {
        self.connections().announce(&channel(topic)).await;
    }

    async fn hinted(&self, topic: &Partition) {
        self.connections().notified(&channel(topic)).await;
    }

    fn listens(&self, topic: &Partition) -> bool {
        self.connections().listens(&channel(topic))
    }
}

/// Names have at most 63 letters, so it is a digest (FNV-1a, 64 bits). A channel that two topics share costs looks.
fn channel(topic: &Partition) -> String {
    let digest = topic.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("vvm_{digest:016x}")
}

/// (I7) What is not certain is unknown, error codes that later versions add included. A server's error of severity ERROR
/// ends the one transaction that a request is, before its commit. FATAL ends the connection, and PANIC the server: after
/// the commit, perhaps. A pooler has codes of its own, with either severity.
fn of_server(error: &DbError) -> DriverError {
    let text = format!("{} ({})", error.message(), error.code().code());
    if error.parsed_severity() != Some(Severity::Error) {
        return DriverError::Unanswered(text);
    }
    let code = error.code();
    if [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(code) {
        return DriverError::NoTables(text);
    }
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        return DriverError::Denied(text);
    }
    match code.code().get(..2) {
        _ if *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN => DriverError::Unanswered(text),
        Some("0A" | "22" | "23" | "28" | "42") => DriverError::Refused(text),
        Some("25" | "40" | "53" | "54" | "55") => DriverError::RolledBack(text),
        _ if *code == SqlState::QUERY_CANCELED => DriverError::RolledBack(text),
        // A pooler that lost its server may say so with any other code: the commit may have been sent.
        _ => DriverError::Unanswered(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_is_the_same_in_every_release() {
        assert_eq!(channel(&Partition::from_bytes(*b"a")), "vvm_af63dc4c8601ec8c");
        assert_eq!(channel(&Partition::from_bytes(*b"foobar")), "vvm_85944171f73967e8");
    }
}
