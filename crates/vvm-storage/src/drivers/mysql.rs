//! Driver `mysql`: tables in a database of MariaDB or MySQL. docs/storages/mysql.md has options, rights, what is
//! refused, and traps. MySQL could not be had where this was written: what concerns it alone follows its documentation.
//!
//! **How the contract is kept.** One row per slot in table `sysvvm_leader`, which stays when the slot is released. A
//! verb is one `UPDATE` that commits by itself, with the condition in its `WHERE`, and counts the rows that met it
//! (`CLIENT_FOUND_ROWS`). After 0 rows a transaction locks the row, shows it, writes again and shows the history, in
//! one message: the server never waits for us in the middle of a transaction, and no message is sent twice. Isolation
//! is `READ COMMITTED`, so that nothing locks gaps, and each statement sees what was committed before it.
//!
//! **Statements** are text. The driver speaks the protocol itself: no task runs between requests, and a dropped request
//! ends its connection. So does an error, and with it the server ends a transaction that failed half-way.
//!
//! **Documents** are rows of their own. A batch locks the leader record, compares epoch, incarnation and the count of
//! batches, and writes what it has if the count was raised, in one message.
//!
//! **Reads.** `read` and `fence_state` write to the row that they show: without a binary log, InnoDB shows a commit to
//! others before it is on disk, and this write's commit waits for the disk. `peek` is a plain read. No age is proven.
//!
//! **After a fail-over.** A replica that lags has forgotten the last writes. `read_only` can be switched in a running
//! server. So each write compares, in its condition, the server (`server_uuid`; on MariaDB `server_id`, host and port),
//! a random *witness*, the number of the connection, and that the server accepts writes and keeps them. A change of
//! server or witness is a new history, which is adopted [as on PostgreSQL](super::postgres). Epochs of adopted slots
//! are at least the server's unix milliseconds plus one day for each generation.
//!
//! Each adoption raises the *generation*. A handle adopts once more if it knows a later one than the server shows, or
//! another one with the same number. So a former primary that lags, and is switched back to, is noticed by each process
//! that saw what came after it. A server that is restored in place shows an unchanged history with old epochs.
//!
//! **Errors.** A request is one transaction. Codes were recorded from MariaDB 10.11.5 where a test says so.
//!
//! | what went wrong | to a write | to a read | because |
//! |---|---|---|---|
//! | no connection: network, a server that is read-only, too many connections, not within half the request timeout; what is refused, certificate, user, password, database | `NotApplied` | `Unavailable` | nothing was sent. Opening fails for good at what is refused |
//! | 1205 lock wait timeout, 1213 deadlock, 1290, 1792 and 1836 read-only, 1021, 1114 and 1637 full, 1203 and 1226 limits | `NotApplied` | `Unavailable` | rolled back, at the latest with the connection |
//! | 1044, 1142, 1143, 1227 no permission | `NotApplied` | `Unavailable` | rolled back; the right may be given back. Opening fails for good |
//! | 1045, 1054, 1064, 1264, 1406, 1153, 1665 login, statement, data, length, log format | `Fatal` | `Fatal` | rolled back, and will be again |
//! | 1049, 1146: database or table are missing | `Replaced` | `Replaced` | they were there when it was opened |
//! | any other error (1180 during the commit, 1317 killed, …) | `Unknown` | `Unavailable` | it may come after the commit |
//! | connection broken, or no answer within the request timeout | `Unknown` | `Unavailable` | the server may have begun |
//! | the server became read-only, or begins to lose commits | `NotApplied` | `Unavailable` | nothing was written |
//! | another history, to a renewal, release or batch | `Replaced` | – | nothing was written, and another leader may be at work |
//! | another history, to a claim | refused | adopted, and read again | nothing was written |
//! | this machine's clock 12 h or more from the server's, at a claim | `NotApplied` | – | nothing was written |
//! | a row that makes no sense | `Fatal` | `Fatal` | another program writes to the tables |

mod config;
mod connection;
mod opening;
mod protocol;
mod rows;
mod statements;

use super::sql::{
    connection::{ConnectionPool, Server as _},
    driver::{Driver, SqlStorage},
    errors::DriverError,
    history::Lineage,
    opening::Purpose,
    rows::StatementResults,
};
use crate::opening::OpenError;
use config::MySql;
use connection::Session;
#[cfg(feature = "testing")]
pub use protocol::decodes;
use std::time::Duration;

/// A handle on a database: connections of its own.
pub type MySqlStorage = SqlStorage<MySql, Session>;

impl MySqlStorage {
    /// Connects to the database that `url` names, and checks server and tables, and that the login may write. Creates nothing.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::opened(MySql::at(url)?, Purpose::Lead).await
    }

    /// As [`open`](Self::open), errors and cancel safety too, for a login that may only read.
    pub async fn open_read_only(url: &str) -> Result<Self, OpenError> {
        Self::opened(MySql::at(url)?, Purpose::Look).await
    }
}

impl Driver for MySql {
    const READS_ALONE: bool = false;

    async fn send_single(
        connections: &ConnectionPool<Self, Session>,
        statement: &Self::Statement<'_>,
        _history: &Lineage,
        _lock_timeout: Duration,
    ) -> Result<Option<StatementResults>, DriverError> {
        connections.ask(statement).await.map(Some)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text} ({code})")]
struct ServerError {
    code: u16,
    text: String,
}

/// The codes of the table above. (I7) What is not certain is unknown, codes that later versions add included.
impl From<ServerError> for DriverError {
    fn from(refusal: ServerError) -> Self {
        let text = refusal.to_string();
        match refusal.code {
            1021 | 1114 | 1203 | 1205 | 1213 | 1226 | 1290 | 1637 | 1792 | 1836 => Self::RolledBack(text),
            1044 | 1142 | 1143 | 1227 => Self::Denied(text),
            1045 | 1054 | 1064 | 1153 | 1264 | 1406 | 1665 => Self::Refused(text),
            1049 | 1146 => Self::NoTables(text),
            _ => Self::Unanswered(text),
        }
    }
}
