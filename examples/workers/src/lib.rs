//! Writes to PostgreSQL that a deposed leader can't make: each transaction begins with the fence, which
//! compares epochs. `python/worker.py` and `go/main.go` do the same under `vvm run`.
#![forbid(unsafe_code)]

use tokio_postgres::{Client, Error, Transaction};

/// Creates the tables.
pub const SCHEMA: &str = include_str!("../schema.sql");

/// Changes no row if a larger epoch has written.
const FENCE: &str = "INSERT INTO fence (resource, epoch) VALUES ($1, $2) \
    ON CONFLICT (resource) DO UPDATE SET epoch = excluded.epoch WHERE fence.epoch <= excluded.epoch";

/// A payment was not made, or its outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub enum PayError {
    /// Nothing was written.
    #[error("epoch {epoch} of {resource} has ended: a later leader has written")]
    Stale {
        /// What is led.
        resource: String,
        /// The epoch of this write.
        epoch: i64,
    },
    /// After a failed commit the outcome is unknown.
    #[error(transparent)]
    Database(#[from] Error),
}

/// Locks the resource's row until the end of the transaction, so no later leader writes in between. Waits for a
/// transaction that has locked it, and compares with what that one has committed. Fails with [`PayError::Stale`] if a
/// larger epoch has written. Then roll back.
pub async fn fence(transaction: &Transaction<'_>, resource: &str, epoch: i64) -> Result<(), PayError> {
    match transaction.execute(FENCE, &[&resource, &epoch]).await? {
        0 => Err(PayError::Stale { resource: resource.to_owned(), epoch }),
        _ => Ok(()),
    }
}

/// Makes a payment in a transaction that begins with the fence.
pub async fn pay(client: &mut Client, resource: &str, epoch: i64) -> Result<(), PayError> {
    // An error drops the transaction, which rolls it back.
    let transaction = client.transaction().await?;
    fence(&transaction, resource, epoch).await?;
    transaction
        .execute("INSERT INTO payment (resource, epoch) VALUES ($1, $2)", &[&resource, &epoch])
        .await?;
    Ok(transaction.commit().await?)
}
