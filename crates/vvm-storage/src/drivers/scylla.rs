//! Driver `scylla`: ScyllaDB and Apache Cassandra, over CQL. Several machines.
//!
//! Tried on Apache Cassandra 5.0.5 (`paxos_variant: v2`). Every statement is one that ScyllaDB's documentation has too,
//! but ScyllaDB itself was not tried.
//!
//! **How the contract is kept.** One partition per slot, whose static columns are the leader record. Each verb is one
//! lightweight transaction on it, linearized by `SERIAL`; reads are `SERIAL` too. A release writes a marker over the
//! record and no tombstone, so that the epoch stays. A condition names every column, since a refusal shows only those
//! named: what stands there is known without a second read. Nothing but these transactions writes to the table.
//! The client library retries nothing and sends nothing twice. (A transaction that the server first lost to another and
//! then finished all the same is answered with a refusal that shows our own version; elections know it for a success.)
//!
//! **Never early.** Nothing ends a record but a write: no TTL of the server is used, and a table that has one is
//! refused. No age is ever proven, so a standby that comes anew waits one TTL of its own; no clock of any server matters.
//!
//! **Where.** `scylla://host1,host2:9042/keyspace?option=value&…`: contact points (port 9042 unless given), the
//! keyspace, and:
//!
//! | option | meaning |
//! |---|---|
//! | `datacenter=dc1` | nodes there are asked first; with `serial=local` no others are |
//! | `serial=local` | `LOCAL_SERIAL` and `LOCAL_QUORUM` within `datacenter`, which must be named. Default: `SERIAL` and `QUORUM` over all |
//! | `user=vvm` | logs in; the password is in the environment variable `VVM_STORAGE_PASSWORD`, unless |
//! | `password_file=path` | the password is the first line of this file |
//! | `replication=3`, `replication=dc1:3,dc2:3` | for a keyspace that [`init_storage`](crate::init_storage) creates |
//!
//! The level, and for `LOCAL_SERIAL` the data centre, are recorded with the table when it is created. Whoever comes with
//! another is refused: two levels on one row would not see each other, and both could lead. There is no TLS yet.
//!
//! **Errors.** What reached a server may have been applied unless the server says that it did not even begin.
//!
//! | what went wrong | to a write | to a read |
//! |---|---|---|
//! | no connection to any node, or none free on it; no node to ask; a statement that could not be prepared | `NotApplied` | `Unavailable` |
//! | `Unprepared` (prepared again by the library, and forgotten again) | `NotApplied` | `Unavailable` |
//! | a value that doesn't fit the column: the table is not ours | `Fatal` | `Fatal` |
//! | `SyntaxError`, `Invalid`, `ConfigError`, `AlreadyExists`, `ProtocolError` | `Fatal` | `Fatal` |
//! | `AuthenticationError`, `Unauthorized` | `Fatal` | `Fatal` |
//! | the statement's id changed when it was prepared again: the table was altered | `Fatal` | `Fatal` |
//! | no answer within the request timeout, 2 s | `Unknown` | `Unavailable` |
//! | connection broken before the answer | `Unknown` | `Unavailable` |
//! | an answer that can't be read | `Unknown` | `Unavailable` |
//! | `WriteTimeout` (contention is one, of type `Cas`), `WriteFailure`, `CAS_WRITE_UNKNOWN` (0x1700) | `Unknown` | `Unavailable` |
//! | `ReadTimeout`, `ReadFailure`: a transaction reads after an earlier round of it may have been accepted | `Unknown` | `Unavailable` |
//! | `Unavailable` (no quorum), `Overloaded`: also said when it is time to commit | `Unknown` | `Unavailable` |
//! | `IsBootstrapping`, `TruncateError`, `RateLimitReached`, `FunctionFailure`, `ServerError`, any other | `Unknown` | `Unavailable` |
//! | applied, with a row that makes no sense | – | `Fatal` |
//! | refused, with a row that makes no sense | `Fatal` | – |
//!
//! **What it can't do.** With `commitlog_sync: periodic`, Cassandra's default, a power cut of a whole quorum may forget
//! the last seconds, an epoch among them; `batch` or `group` does not. In ScyllaDB, versions that have no lightweight
//! transactions on tablets need a keyspace without (`tablets = {'enabled': false}`). Closing ends the sockets within
//! moments, not before it returns: the library's tasks end by themselves.

mod driver;
mod errors;
mod open;
mod rows;

pub use driver::ScyllaStorage;
pub use open::OpenError;
pub(crate) use open::init;
