//! The least statements of each driver, sent directly through the same client library.
//!
//! A new driver adds a file, a line in [`open`], and a feature.

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "kubernetes")]
mod kubernetes;
#[cfg(feature = "object-store")]
mod objects;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "scylla")]
mod scylla;
#[cfg(feature = "sled")]
mod sled;
mod sqlite;

use super::StorageError;
use async_trait::async_trait;
use std::{error::Error, ops::Range};

/// An error of the client library.
pub(super) type BareError = Box<dyn Error + Send + Sync>;

/// One conditional write for each verb, with the columns and the durability of the driver's. The caller
/// numbers the slots, and claims, renews and releases each once, in that order.
#[async_trait(?Send)]
pub(super) trait BareStatements {
    /// Claims a slot that was never led, without reading first.
    async fn claim(&mut self, slot: u32) -> Result<(), BareError>;

    /// Replaces the claim by another write.
    async fn renew(&mut self, slot: u32) -> Result<(), BareError>;

    /// Makes the slot vacant.
    async fn release(&mut self, slot: u32) -> Result<(), BareError>;

    /// Claims each of `slots` for a writer of its own; `None` if many writers at once are not measured.
    async fn writers(&mut self, _slots: Range<u32>) -> Result<Option<Vec<Box<dyn BareWriter>>>, BareError> {
        Ok(None)
    }
}

/// One of many that renew at once.
#[async_trait(?Send)]
pub(super) trait BareWriter {
    /// Replaces its last write by the next one.
    async fn renew(&mut self) -> Result<(), BareError>;
}

/// Returns the statements of the driver that `url` names.
pub(super) async fn open(url: &str) -> Result<Box<dyn BareStatements>, StorageError> {
    match url.split_once(':') {
        Some(("sqlite", path)) => Ok(Box::new(sqlite::Sqlite::beside(path)?)),
        #[cfg(feature = "sled")]
        Some(("sled", path)) => Ok(Box::new(sled::Sled::beside(path)?)),
        #[cfg(feature = "scylla")]
        Some(("scylla", _)) => Ok(Box::new(scylla::Scylla::connect(url).await?)),
        #[cfg(feature = "postgres")]
        Some(("postgres", _)) => Ok(Box::new(postgres::Postgres::connect(url).await?)),
        #[cfg(feature = "etcd")]
        Some(("etcd", _)) => Ok(Box::new(etcd::Etcd::new(url)?)),
        #[cfg(feature = "kubernetes")]
        Some(("k8s", _)) => Ok(Box::new(kubernetes::Kubernetes::open(url).await?)),
        #[cfg(feature = "object-store")]
        Some(("s3", _)) => Ok(Box::new(objects::Objects::open(url)?)),
        #[cfg(feature = "dynamodb")]
        Some(("dynamodb", _)) => Ok(Box::new(scylla::DynamoDb::connect(url).await?)),
        _ => Err(StorageError::Bare(
            format!(
                "no bare statements to hold `{url}` against: it needs a feature of this program, or a file"
            )
            .into(),
        )),
    }
}

/// Makes a folder beside `path`, on the same disk.
fn folder_beside(path: &str) -> std::io::Result<tempfile::TempDir> {
    let path = std::path::absolute(path)?;
    tempfile::Builder::new().prefix("bench-").tempdir_in(path.parent().unwrap_or(&path))
}

/// The fixed parts of a record.
const INCARNATION: [u8; 16] = [7; 16];
const TTL_NANOS: i64 = 20_000_000_000;
const HOLDER: &str = "10.0.0.7";

/// A partition's key, as long as the driver's.
fn key(slot: u32) -> Vec<u8> {
    [b"\x01bench-4242-1234567890123".as_slice(), &slot.to_be_bytes()].concat()
}
