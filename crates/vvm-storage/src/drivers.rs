//! One file per database, each behind its feature, with the verbs of [`SysVvmStorage`](crate::SysVvmStorage), and a
//! folder:
//! - `open.rs` opens a location, and refuses what is unsafe;
//! - `rows.rs` stores slots, settings and documents;
//! - `errors.rs` maps the database's errors to `NotApplied`, `Unknown` and `Fatal`, by the table of the driver.
//!
//! `sql/` has what the drivers of SQL servers share, and the files beside the folders what all share.

pub(crate) mod address;
#[cfg(any(feature = "etcd", feature = "kubernetes", feature = "mysql", feature = "postgres"))]
mod connections;
#[cfg(any(feature = "sled", feature = "sqlite"))]
mod database_thread;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
mod errors;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "testing"))]
pub mod fail_over;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
#[cfg(feature = "mem")]
pub mod mem;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "object-store")]
pub mod objects;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(test)]
#[cfg(any(feature = "dynamodb", feature = "kubernetes", feature = "object-store"))]
mod scripted;
#[cfg(feature = "scylla")]
pub mod scylla;
#[cfg(feature = "sled")]
pub mod sled;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(
    feature = "etcd",
    feature = "kubernetes",
    feature = "mysql",
    feature = "postgres",
    feature = "scylla"
))]
mod tls;
#[cfg(any(feature = "etcd", feature = "kubernetes"))]
mod watches;
