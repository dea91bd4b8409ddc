//! From a URL to connections that are checked, and everything that opening refuses.

mod address;
mod check;
mod cluster;
mod connections;
mod error;
mod kubeconfig;
mod session;
mod tls;
mod token;
mod watch;

pub(super) use address::Address;
pub(super) use check::{missing_rights, version};
pub(super) use connections::Connections;
pub use error::OpenError;
pub(super) use watch::{Change, Watch};

use super::{errors::DriverError, rows};
use crate::Partition;

/// Connects, and reads a Lease that does not exist: server, credentials and the right to read are there. A
/// user without the right to create Leases may look.
pub(super) async fn open(address: &Address) -> Result<Connections, OpenError> {
    let connections = Connections::new(cluster::find(address)?, address.request_timeout)?;
    let nothing = rows::name(&Partition::from_bytes(*b""));
    connections
        .get(&nothing, false)
        .await
        .map_err(|error| OpenError::of_request(connections.server(), error))?;
    match check::creation(&connections).await {
        Err(error @ DriverError::NoNamespace(_)) => Err(OpenError::of_request(connections.server(), error)),
        _ => Ok(connections),
    }
}

/// Checks that the namespace and all rights are there. Kubernetes needs nothing else.
///
/// # Errors
/// See [`OpenError`].
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let connections = open(&Address::parse(url)?).await?;
    let checked = check::check_rights(&connections).await;
    connections.close();
    checked
}
