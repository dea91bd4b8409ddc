//! From an address to a keyspace that is ours, and everything that opening refuses.

mod address;
mod connect;
mod connections;
mod error;
mod identity;
mod login;
mod session;
mod watch;

pub(super) use address::Address;
pub(super) use connections::Connections;
pub use error::OpenError;
pub(super) use session::Path;
pub(super) use watch::Watch;

use super::rows::Keyspace;

/// Connects, and checks that the prefix is ours.
pub(super) async fn open(address: Address) -> Result<(Connections, Keyspace), OpenError> {
    if let Some(warning) = address.unencrypted() {
        tracing::warn!(storage = %address, "{warning}");
    }
    let connections = Connections::new(address)?;
    let keyspace = identity::check(&connections).await?;
    Ok((connections, keyspace))
}

/// Creates the key by which the storage is known, if it is missing. May be run again, and by many at once.
///
/// # Errors
/// See [`OpenError`]: also if the prefix belongs to another program.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let connections = Connections::new(Address::parse(url)?)?;
    let created = identity::create(&connections).await;
    connections.close().await;
    created
}
