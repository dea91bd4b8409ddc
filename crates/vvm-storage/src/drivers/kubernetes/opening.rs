//! What is checked at each opening, and by `vvm init-storage`.

use super::{
    DriverError,
    config::{Address, find},
    connection::Connections,
    names,
    requests::{missing_rights, try_creation},
};
use crate::{key::Partition, opening::OpenError};

/// Connects, and reads a Lease that does not exist: server, credentials and the right to read are there. A
/// user without the right to create Leases may look.
pub(super) async fn open(address: &Address) -> Result<Connections, OpenError> {
    let connections = Connections::new(find(address)?, address.request_timeout)?;
    // The first one is waited for: a login plug-in may take longer than a request.
    let _credential = connections.cluster.token.get(connections.clock()).await?;
    let nothing = names::name(&Partition::from_bytes(*b""));
    connections
        .get(&nothing, false)
        .await
        .map_err(|error| error.into_open_error(&connections.cluster.server))?;
    match try_creation(&connections).await {
        Err(error @ DriverError::NoNamespace(_)) => Err(error.into_open_error(&connections.cluster.server)),
        _ => Ok(connections),
    }
}

/// Checks that the namespace and all rights are there. Kubernetes needs nothing else.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let connections = open(&Address::parse(url)?).await?;
    let checked = check_rights(&connections).await;
    connections.close().await;
    checked
}

/// Checks that Leases can be created in the namespace, by a dry run, and that no right is missing.
pub(super) async fn check_rights(connections: &Connections) -> Result<(), OpenError> {
    let failed = |error: DriverError| error.into_open_error(&connections.cluster.server);
    let missing = missing_rights(connections).await.map_err(failed)?;
    if !missing.is_empty() {
        let why = format!("{} leases in namespace {}", missing.join(", "), connections.cluster.namespace);
        return Err(failed(DriverError::Denied(why)));
    }
    try_creation(connections).await.map_err(failed)
}
