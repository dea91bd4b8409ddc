//! Driver `scylla`: ScyllaDB and Apache Cassandra, over CQL. Several machines.
//!
//! Tried on Apache Cassandra 5.0.5 (`paxos_variant: v2`): the suites of records, elections and documents on
//! one node and on three; fail-over on three of which one's clock was 8 s ahead (never early; in time with
//! `internode_timeout: false`, which docs/storage.md explains; on a busy machine not every case of the suites
//! passed then); passwords, permissions and TLS 1.3 on one node. Every statement is one that ScyllaDB's
//! documentation has too, but ScyllaDB itself was not tried. What is needed of either is version 4 of CQL's
//! protocol, and lightweight transactions.
//!
//! **How the contract is kept.** One partition per slot, whose static columns are the leader record. Each
//! verb is one lightweight transaction on it, linearized by `SERIAL`; reads are `SERIAL` too. A release
//! writes a marker over the record and no tombstone, so that the epoch stays. A condition names every column,
//! since a refusal shows only those named: what stands there is known without a second read. Nothing but
//! these transactions writes to the table. The client library retries nothing and sends nothing twice. (A
//! transaction that the server first lost to another and then finished all the same is answered with a
//! refusal that shows our own version; elections know it for a success.)
//!
//! **Documents** are rows of their slot's partition. A batch is one conditional batch of CQL: a statement on
//! the static columns that compares epoch, incarnation and the number of the last batch, and one for each
//! document, those with a condition of their own included. `batch_size_fail_threshold` does not apply:
//! Cassandra and ScyllaDB measure batches without conditions alone, and of those only what goes to several
//! partitions. An id is drawn for each batch and stored with its number, which tells a refusal from one that
//! shows our own batch (as above). What remains: a deposed leader may be told that its last batch was
//! refused, although it landed before the one who deposed it, if that one has written since. All reads are
//! `SERIAL`.
//!
//! A deleted document leaves a tombstone for `gc_grace_seconds`, ten days unless altered. Scans read over
//! them: Cassandra warns of 1,000 on a page and refuses it at 100,000 (`tombstone_failure_threshold`).
//! Renewals don't meet any: the first row of a partition with documents is one that nobody deletes. Put a
//! document again rather than delete it and make another.
//!
//! **Never early.** Nothing ends a record but a write: no TTL of the server is used, and a table that has one
//! is refused. No age is ever proven, so a standby that comes anew waits one TTL of its own. No clock
//! matters: no statement has a timestamp, cells get that of their transaction's ballot, and a ballot is
//! larger than those before it whatever the clock of the node that makes it shows.
//!
//! **Where.** `scylla://host1,host2:9042/keyspace?option=value&…`: contact points (port 9042 unless given),
//! the keyspace, and:
//!
//! | option | meaning |
//! |---|---|
//! | `datacenter=dc1` | nodes there are asked first; with `serial=local` no others are |
//! | `serial=local` | `LOCAL_SERIAL` and `LOCAL_QUORUM` within `datacenter`, which must be named. Default: `SERIAL` and `QUORUM` over all |
//! | `user=vvm` | logs in; the password is in the environment variable `VVM_STORAGE_PASSWORD`, unless |
//! | `password_file=path` | the password is the first line of this file |
//! | `tls_ca=path` | TLS 1.2 or 1.3, with nodes whose certificates were signed by one of these (PEM) |
//! | `tls_certificate=path`, `tls_key=path` | what we show to a node that asks (PEM; the key without a passphrase) |
//! | `tls_name=name` | nodes' certificates have to bear this name, or with `*` any. Default: the node's address |
//! | `replication=3`, `replication=dc1:3,dc2:3` | for a keyspace that [`init_storage`](crate::init_storage) creates |
//! | `request_timeout=5s` | how long a request may take, from 100 ms to 60 s: 2 s unless given. Elections and leaders' documents wait for a tenth of the TTL at most, so more is of use with longer TTLs than 20 s |
//!
//! The level, and for `LOCAL_SERIAL` the data centre, are recorded with the table when it is created. Whoever
//! comes with another is refused: two levels on one row would not see each other, and both could lead. A
//! login needs `SELECT` and `MODIFY` on the keyspace, `CREATE` to create it, and `ALTER` to add columns to
//! the table of an earlier version, which is refused until [`init_storage`](crate::init_storage) has done
//! that; who leads on it goes on meanwhile. `tls_name=*` is for an authority that signs nothing but nodes:
//! whoever has any certificate of it could pose as one. Nodes are known by their addresses alone, so that no
//! host name of the URL can stand in for `tls_name`. The machine's wall clock decides whether a certificate
//! is valid today.
//!
//! **Errors.** What reached a server may have been applied unless the server says that it did not even begin.
//!
//! | what went wrong | to a write | to a read | because |
//! |---|---|---|---|
//! | no connection to any node, or none free on it; no node to ask | `NotApplied` | `Unavailable` | nothing was sent |
//! | `Unprepared` (prepared again by the library, and forgotten again) | `NotApplied` | `Unavailable` | a node looks a statement up before it begins |
//! | a value that doesn't fit the column | `Fatal` | `Fatal` | nothing was sent, and the table is not ours |
//! | `SyntaxError`, `Invalid`, `ConfigError`, `AlreadyExists`, `ProtocolError` | `Fatal` | `Fatal` | said of the statement, before it is begun: keyspace or table were dropped or altered |
//! | `AuthenticationError`, `Unauthorized` | `Fatal` | `Fatal` | looked at before it is begun |
//! | the statement's id changed when it was prepared again | `Fatal` | `Fatal` | the table was altered; nothing was executed |
//! | no answer within the request timeout | `Unknown` | `Unavailable` | it may be on its way, and was seen to be applied later |
//! | connection broken before the answer | `Unknown` | `Unavailable` | the node may have begun |
//! | an answer that can't be read | `Unknown` | `Unavailable` | the node has done something |
//! | `WriteTimeout` (contention is one, of type `Cas`), `WriteFailure`, `CAS_WRITE_UNKNOWN` (0x1700) | `Unknown` | `Unavailable` | some replicas may have accepted it, and a later transaction then finishes it |
//! | `ReadTimeout`, `ReadFailure` | `Unknown` | `Unavailable` | a transaction reads after an earlier round of it may have been accepted |
//! | `Unavailable` (no quorum), `Overloaded` | `Unknown` | `Unavailable` | said at the beginning, but also when it is time to commit |
//! | `IsBootstrapping`, `TruncateError`, `RateLimitReached`, `FunctionFailure`, `ServerError`, any other | `Unknown` | `Unavailable` | nothing says when |
//! | applied, with a row that makes no sense | – | `Fatal` | somebody else writes to the table |
//! | refused, with a row that makes no sense | `Fatal` | – | likewise |
//! | a batch of documents that is refused, with its own id in the row | applied | – | it was lost, and finished by another |
//!
//! **Closing** ends the library's tasks and their sockets, and waits until the last of them has ended. A call
//! that runs keeps them until it ends; one that nobody drives to its end is waited for in vain, for 5 s.
//!
//! **What it can't do.** With `commitlog_sync: periodic`, Cassandra's default, a power cut of a whole quorum
//! may forget the last seconds, an epoch among them; `batch` or `group` does not. In ScyllaDB, versions that
//! have no lightweight transactions on tablets need a keyspace without (`tablets = {'enabled': false}`).

mod driver;
mod errors;
mod open;
mod rows;

pub use driver::ScyllaStorage;
pub use open::OpenError;
pub(crate) use open::init;
