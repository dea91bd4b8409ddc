//! One file per database, each behind its feature, with the verbs of [`SysVvmStorage`](crate::SysVvmStorage), and a folder:
//! - `open.rs` opens a location, and refuses what is unsafe;
//! - `rows.rs` stores slots, settings and documents;
//! - `errors.rs` maps the database's errors to `NotApplied`, `Unknown` and `Fatal`.
//!
//! Servers have files for connections and sessions. Beside the folders is what drivers share.

mod closed;
#[cfg(any(feature = "sled", feature = "sqlite"))]
mod database_thread;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "scylla"))]
mod hosts;
#[cfg(any(feature = "dynamodb", feature = "object-store"))]
mod http_connection;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
#[cfg(feature = "mem")]
pub mod mem;
#[cfg(feature = "object-store")]
pub mod objects;
pub(crate) mod options;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "scylla"))]
mod password;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(
    feature = "dynamodb",
    feature = "etcd",
    feature = "kubernetes",
    feature = "object-store",
    feature = "postgres",
    feature = "scylla"
))]
mod request_timeout;
#[cfg(feature = "scylla")]
pub mod scylla;
#[cfg(any(feature = "dynamodb", feature = "etcd", feature = "postgres"))]
mod seen;
#[cfg(feature = "sled")]
pub mod sled;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "etcd", feature = "kubernetes", feature = "postgres", feature = "scylla"))]
mod tls;
#[cfg(any(feature = "etcd", feature = "scylla"))]
mod tls_options;
