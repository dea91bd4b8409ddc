//! Driver `mysql`: tables in a database of MariaDB or MySQL. Several machines, on a server that is there already.
//!
//! Tried on MariaDB 10.11.5: the suites of records, elections and documents, TLS, replicas that lag and are promoted. MySQL
//! could not be had where this was written: what concerns it alone follows its documentation.
//!
//! **How the contract is kept.** One row per slot in table `sysvvm_leader`, which stays when the slot is released. A
//! verb is one `UPDATE` that commits by itself, with the condition in its `WHERE`, and counts the rows that met it
//! (`CLIENT_FOUND_ROWS`). After 0 rows a transaction locks the row, shows it, writes again and shows the history, in
//! one message: the server never waits for us in the middle of a transaction, and no message is sent twice. Isolation
//! is `READ COMMITTED`, so that nothing locks gaps, and each statement sees what was committed before it.
//!
//! **Statements** are text, with bytes in hexadecimal digits. The protocol is spoken by the driver itself: no task
//! runs between requests, nothing is retried, and a dropped request ends its connection. A connection is not used
//! again after an error, so the server ends a transaction that failed half-way.
//!
//! **Documents** are rows of their own. A batch locks the leader record, compares epoch, incarnation and the count of batches,
//! and writes what it has if the count was raised, in one message.
//!
//! **Reads.** `read` and `fence_state` write to the row that they show: without a binary log, InnoDB shows a commit to
//! others before it is on disk, and the end of their own transaction waits for the disk. `peek` is a plain read.
//! Replicas are not read.
//!
//! **Never early.** Nothing ends a record but a write. No age is ever proven, so a standby that comes anew waits one
//! TTL of its own. There are no notifications: candidates look once a second.
//!
//! **After a fail-over.** A replica that lags has forgotten the last writes: a claim whose leader is at work, a
//! renewal, an epoch. `read_only` can be switched in a running server. So each write compares, in its condition, the
//! server (`server_uuid`; on MariaDB, which has none, `server_id`, host and port), a random *witness*, the number of
//! the connection, and that the server accepts writes and keeps them. A change of server or witness is a new history:
//!
//! - A renewal, release or batch of the old history is `Replaced`: the leader is lost at once.
//! - The first candidate that sees the new history *adopts* it, with all slots: each is held by a record under which
//!   nothing leads. Its version is new, so observations begin anew. Its TTL is the largest that a claim may have, so
//!   forgotten leaders have ended before the slot is taken over (I1). Its epoch is at least the server's unix
//!   milliseconds plus one day for each generation, which exceeds forgotten ones (I2). A slot without a row gets such
//!   a record when it is first claimed.
//!
//! Each adoption raises the *generation*. A handle adopts once more if it knows a later one than the server shows, or
//! another one with the same number. So a former primary that lags, and is switched back to, is noticed by each
//! process that saw what came after it. The largest TTL is the largest of three: what the server has, what this handle
//! saw before, and `max_ttl` of its URL. Clocks may differ as for PostgreSQL: 12 h between a candidate and the server,
//! and 12 h between two servers.
//!
//! **Where.** `mysql://user@host1,host2:3306/database?option=value&…`: the first host that accepts writes is used.
//! `mariadb://` means the same. In user, password and database, `%XX` stands for a byte.
//!
//! | option | meaning |
//! |---|---|
//! | `password_file=path` | the password is the first line of this file. Else it is in the URL (`user:password@`) or in the environment variable `VVM_STORAGE_PASSWORD` |
//! | `tls=off` | no TLS. Without it, TLS is used unless all hosts are loopback, and opening warns |
//! | `tls_ca=path` | the authorities that sign servers' certificates (PEM). Default: those of the system |
//! | `tls_name=name` | the name of the certificates, if it is not the host's; `*` for any |
//! | `tls_certificate=path`, `tls_key=path` | our certificate for a server that requests one (PEM; the key without a passphrase) |
//! | `max_ttl=60s` | for [`init_storage`](crate::init_storage): the largest TTL of any candidate, and the wait after a fail-over. 20 s unless given. Running it again raises it. For candidates: a lower bound of the wait after a fail-over |
//! | `connections=64` | how many requests, and so connections, there may be at once: 8 unless given |
//! | `request_timeout=5s` | how long a request may take, from 100 ms to 60 s: 2 s unless given, half of it for connecting to one host |
//!
//! Logins with `mysql_native_password`, `caching_sha2_password`, and with TLS `mysql_clear_password`.
//!
//! **Refused** when it is opened, with the reason: a pooler or proxy (the number of the connection in the greeting is not the
//! server's), `innodb_flush_log_at_trx_commit` other than 1 (or MariaDB's 3), a binary log without `sync_binlog = 1` or with
//! `binlog_format = STATEMENT`, Galera, group replication with several writers, tables of another engine than InnoDB, MariaDB
//! before 10.6 and MySQL before 8.0.
//!
//! **Errors.** A request is one transaction. Codes were recorded from MariaDB 10.11.5 where a test says so.
//!
//! | what went wrong | to a write | to a read | because |
//! |---|---|---|---|
//! | no connection: network, a server that is read-only, too many connections, not within half the request timeout; what is refused above, certificate, user, password, database | `NotApplied` | `Unavailable` | nothing was sent. Opening fails for good at what is refused |
//! | 1205 lock wait timeout, 1213 deadlock, 1290, 1792 and 1836 read-only, 1021, 1114 and 1637 full, 1203 and 1226 limits | `NotApplied` | `Unavailable` | rolled back, at the latest with the connection |
//! | 1044, 1045, 1142, 1143, 1227 no permission; 1054, 1064, 1264, 1406, 1153, 1665 statement, data, length, log format | `Fatal` | `Fatal` | rolled back, and will be again |
//! | 1049, 1146: database or table are missing | `Replaced` | `Replaced` | they were there when it was opened |
//! | any other error (1180 during the commit, 1317 killed, …) | `Unknown` | `Unavailable` | it may come after the commit |
//! | connection broken, or no answer within the request timeout | `Unknown` | `Unavailable` | the server may have begun |
//! | the server became read-only, or begins to lose commits | `NotApplied` | `Unavailable` | nothing was written |
//! | another history, to a renewal, release or batch | `Replaced` | – | nothing was written, and another leader may be at work |
//! | another history, to a claim | refused | adopted, and read again | nothing was written |
//! | this machine's clock 12 h or more from the server's, at a claim | `NotApplied` | – | nothing was written |
//! | a row that makes no sense | `Fatal` | `Fatal` | another program writes to the tables |
//!
//! **What it can't do.** While an old primary still accepts writes, its clients notice nothing, and each server may
//! have a leader: make it read-only, or stop it, before a replica accepts writes. A server that is restored in place
//! shows an unchanged history with old epochs. So does a former primary that lags and is used again, if no process is
//! left that saw what came later. Run `UPDATE sysvvm_history SET server = ''` on it before candidates start: the
//! first of them makes all slots wait. Semi-synchronous replication falls back to asynchronous without a sign to
//! clients: its fail-over costs the same wait.

mod address;
mod connections;
mod errors;
mod open;
mod protocol;
mod rows;

#[cfg(feature = "testing")]
pub use protocol::decodes;

use super::sql::{
    answer::Answer,
    connections::Connections,
    driver::{Driver, SqlStorage},
    errors::DriverError,
    history::History,
};
use crate::opening::OpenError;
use address::MySql;
use connections::Session;
use std::time::Duration;

/// A handle on a database: connections of its own.
pub type MySqlStorage = SqlStorage<MySql, Session>;

impl MySqlStorage {
    /// Connects to the database that `url` names, as the module's documentation says, and checks server and
    /// tables. Creates nothing: [`init_storage`](crate::init_storage) does.
    ///
    /// # Errors
    /// See [`OpenError`]: each says what to do.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::opened(url).await
    }
}

impl Driver for MySql {
    const READS_ALONE: bool = false;

    async fn alone(
        connections: &Connections<Self, Session>,
        statement: &Self::Statement<'_>,
        _history: &History,
        _lock_timeout: Duration,
    ) -> Result<Option<Answer>, DriverError> {
        connections.ask(statement).await.map(Some)
    }
}
