//! One folder per database, each behind its feature and with the same files inside, so that who knows one
//! driver finds the way in the others:
//!
//! - `open.rs`: from a location to a driver that is ready, and everything that opening refuses.
//! - `driver.rs`: the verbs of [`SysVvmStorage`](crate::SysVvmStorage). Its helpers, where it needs any,
//!   stand in `driver/`; so for the others.
//! - `rows.rs`: how slots and settings are laid out in the database.
//! - `driver/documents.rs`, `rows/documents.rs`: the same for documents, where a driver keeps some.
//! - `errors.rs`: which error of the database is `NotApplied`, which `Unknown`, which `Fatal`.
//!
//! `options.rs` and `request_timeout.rs` read what follows the `?` of a URL, for the drivers that take
//! options.

#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(feature = "mem")]
pub mod mem;
pub(crate) mod options;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "dynamodb", feature = "postgres", feature = "scylla"))]
mod request_timeout;
#[cfg(feature = "scylla")]
pub mod scylla;
#[cfg(feature = "sled")]
pub mod sled;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "postgres", feature = "scylla"))]
mod tls;
