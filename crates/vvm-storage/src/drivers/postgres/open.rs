//! From an address to connections that are checked, and everything that opening refuses.

mod address;
mod connect;
mod connections;
mod direct;
mod error;
mod hints;
mod password;
mod schema;
mod session;
mod tls;

pub(super) use address::Address;
pub(super) use connections::Connections;
pub use error::OpenError;

use super::rows::{self, History, Shown};

/// Connects, checks the schema, and returns the history that the server has now.
pub(super) async fn open(address: Address) -> Result<(Connections, Shown), OpenError> {
    if let Some(warning) = address.unencrypted() {
        tracing::warn!(storage = %address, "{warning}");
    }
    let connections = Connections::new(address)?;
    schema::check(&connections).await?;
    let answer = connections.ask(&rows::history()).await.map_err(OpenError::of_request)?;
    let row = answer.row(0).ok_or(OpenError::OtherProgram)?;
    let shown = History::shown(Some(row)).map_err(|damaged| OpenError::of_request(damaged.into()))?;
    Ok((connections, shown))
}

/// Whether the URL has a password.
pub(crate) fn has_password(url: &str) -> bool {
    Address::parse(url).is_ok_and(|address| address.password.is_some())
}

/// Creates what is missing. May be run again, and by many at once.
///
/// # Errors
/// See [`OpenError`]: also if the schema belongs to another program.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let connections = Connections::new(Address::parse(url)?)?;
    let created = schema::create(&connections).await;
    connections.close().await;
    created
}
