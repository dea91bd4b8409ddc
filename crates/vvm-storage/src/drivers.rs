//! Each database behind its feature, with the same files in the order of reading:
//! - `NAME.rs`: how the contract is kept, the table of errors beside the code that carries it out, and the verbs of
//!   [`SysVvmStorage`](crate::SysVvmStorage) or [`CellStorage`](crate::cells::CellStorage);
//! - `NAME/config.rs`: URL and options;
//! - `NAME/connection.rs`: connecting, login, time limits, and the end;
//! - `NAME/opening.rs`: what opening checks and `vvm init-storage` creates, unless it is a few lines of the connection;
//! - `NAME/statements.rs` or `requests.rs`: what is sent for each step, with its condition;
//! - `NAME/rows.rs`: how values are laid out, and how answers are decoded. A driver of cells has its values from
//!   [`cells`](crate::cells).
//!
//! Other files are about what this server alone has. `sql/` has what the drivers of SQL servers share, in files of the
//! same names, and the files beside the folders what all share.

pub(crate) mod config;
#[cfg(any(feature = "etcd", feature = "kubernetes", feature = "mysql", feature = "postgres"))]
mod connection;
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

#[cfg(test)]
#[cfg(any(feature = "dynamodb", feature = "kubernetes", feature = "object-store"))]
mod tests;
