//! Driver `etcd`: keys below a prefix of an etcd cluster. Several machines, on a cluster that is there
//! already.
//!
//! Tried on etcd 3.4.23, one member, and 3.7.3, three members: the suites of records, elections and
//! documents; members that are down. Talks gRPC by itself, on HTTP/2: no task runs between requests, and
//! nothing sends a request a second time.
//!
//! **How the contract is kept.** Each verb is one transaction. A slot has three keys: `l` with epoch and
//! incarnation, which stays when the slot is released; `w` with the number of the last write, TTL and holder;
//! `b` with the count of batches. A claim or a renewal compares `l` and `w`, a release `l`. A transaction
//! that is refused shows the keys as it found them. etcd's leases are not used: they would end a record
//! early.
//!
//! **Documents** are keys of their own. A batch compares `l`, `b` and the conditions of its documents, and
//! writes all of them.
//!
//! **Reads** are linearizable. `peek` shows what the member has that is asked.
//!
//! **Never early.** Nothing ends a record but a write. No age is ever proven, so a standby that comes anew
//! waits one TTL of its own.
//!
//! **Another storage.** [`init_storage`](crate::init_storage) creates a key with random bytes, `format`. Each
//! write compares it and each read shows it: the ids of etcd's clusters don't tell them apart. A handle also
//! compares these ids, and revisions, which go back when a cluster is restored from a backup. A handle that
//! finds another storage is `Replaced` from then on.
//!
//! **Hints.** A candidate watches the leaderships and requests of its name, on a connection of its own. A
//! release or a request brings its look forward, and nothing else follows from it.
//!
//! **Where.** `etcd://host1,host2,host3:2379/prefix?option=value&…`: members in the order in which they are
//! tried (port 2379 unless given). Another member is tried if one accepts no connection in its part of the
//! request timeout, and by the next request after one did not answer. A request that was sent is never sent
//! again. All keys begin with the prefix and a slash.
//!
//! | option | meaning |
//! |---|---|
//! | `tls_ca=path` | TLS with members whose certificates an authority in this file (PEM) signed. Without it there is no TLS; for hosts off loopback, opening warns |
//! | `tls_certificate=path`, `tls_key=path` | our certificate for members that request one (PEM; the key without a passphrase). With `--client-cert-auth` its common name is the user |
//! | `tls_name=name` | the name in the members' certificates, if it is not the host's; `*` for any |
//! | `user=name` | the user. The password is in the environment variable `VVM_STORAGE_PASSWORD` |
//! | `password_file=path` | or it is the first line of this file |
//! | `request_timeout=5s` | how long a request may take, from 100 ms to 60 s: 2 s unless given |
//!
//! A user needs a role that reads and writes the prefix. A login that has expired costs one attempt.
//!
//! **Errors.** What is not in the table is `Unknown` to a write, and `Unavailable` to a read.
//!
//! | what went wrong | to a write | to a read | because |
//! |---|---|---|---|
//! | no connection, or the login was not answered | `NotApplied` | `Unavailable` | nothing was sent |
//! | no connection: certificate, user or password refused, no etcd | `Fatal` | `Fatal` | nothing was sent |
//! | 3 invalid argument, 7 permission denied, 12 unimplemented | `Fatal` | `Fatal` | refused before it is proposed or instead of being applied, and will be again |
//! | 3 revision of auth store is old, 16 unauthenticated | `NotApplied` | `Unavailable` | the same; the next request logs in again |
//! | 8 too many requests, 9 not supported for learner | `NotApplied` | `Unavailable` | refused before it is proposed |
//! | 8 database space exceeded | `Unknown` | `Unavailable` | a member may have applied the write that exceeds it |
//! | 14 request timed out, leader changed, server stopped | `Unknown` | `Unavailable` | it was proposed, and may be applied later |
//! | connection broken, or no answer within the request timeout | `Unknown` | `Unavailable` | the member may have begun |
//! | another random key or none, another cluster, an earlier revision | `Replaced` | `Replaced` | another leader may be at work |
//! | a value that makes no sense | `Fatal` | `Fatal` | another program writes below the prefix |
//!
//! **What it can't do.** A cluster that is restored from a backup forgets the last claims and epochs. A
//! process that was connected before notices it at its next request, unless no member had shown it a later
//! revision. So stop all candidates before a restoration, and wait for one TTL after it. Each renewal adds a
//! revision, which etcd keeps until it is compacted: without `--auto-compaction-retention` the database
//! reaches its quota, and etcd refuses all writes.

mod address;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod bare;
mod connections;
mod description;
mod driver;
mod errors;
mod messages;
mod open;
mod rows;
mod session;

pub use driver::EtcdStorage;
pub(crate) use open::init;
