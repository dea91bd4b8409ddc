//! Opens a database: whether its schema is there and ours, its creation, and everything that opening refuses.

use super::{
    address::Address,
    connections::Connections,
    errors::DriverError,
    history::{History, Shown, history},
    rows::{FORMAT, creation, raise_max_ttl},
};
use crate::open_error::OpenError;
use ielections::Ttl;

/// Connects, checks the schema, and returns the history that the server has now.
pub(super) async fn open(address: Address) -> Result<(Connections, Shown), OpenError> {
    if let Some(warning) = address.unencrypted() {
        tracing::warn!(storage = %address, "{warning}");
    }
    let connections = Connections::new(address)?;
    check(&connections).await?;
    let answer = connections.ask(&history()).await.map_err(DriverError::of_opening)?;
    let row = answer.row(0).ok_or_else(other_program)?;
    let shown = History::shown(Some(row)).map_err(|damaged| DriverError::from(damaged).of_opening())?;
    Ok((connections, shown))
}

/// Creates what is missing. May be run again, and by many at once.
///
/// # Errors
/// See [`OpenError`]: also if the schema belongs to another program.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let connections = Connections::new(Address::parse(url)?)?;
    let created = create(&connections).await;
    connections.close().await;
    created
}

/// Our schema's comment, without the number of its format.
const PROGRAM: &str = "vvm elections, format ";

/// Creators take turns (a number of our own): two that create a schema at once would fail each other.
const ONE_CREATOR: &str = "SELECT pg_advisory_xact_lock(4851427634270)";

enum Found {
    Nothing,
    Ours,
}

/// Fails unless the schema is there, and ours, in the format that this driver writes.
pub(super) async fn check(connections: &Connections) -> Result<(), OpenError> {
    match look(connections).await? {
        Found::Ours => Ok(()),
        Found::Nothing => Err(OpenError::missing(format!(
            "database {} has no schema sysvvm: `vvm init-storage --storage URL` creates it",
            connections.address().database
        ))),
    }
}

/// Creates the schema if it is missing, and raises the bound of TTLs if the URL has a larger one.
pub(super) async fn create(connections: &Connections) -> Result<(), OpenError> {
    let max_ttl = connections.address().max_ttl;
    if let Found::Nothing = look(connections).await? {
        let text = format!("{ONE_CREATOR}; {}", creation(max_ttl.unwrap_or(Ttl::DEFAULT)));
        let created = connections.ask(&text).await;
        // Another creator may have been faster: what stands now decides.
        if let (Err(error), Found::Nothing) = (created, look(connections).await?) {
            return Err(error.of_opening());
        }
    }
    if let Some(max_ttl) = max_ttl {
        connections.ask(&raise_max_ttl(max_ttl)).await.map_err(DriverError::of_opening)?;
    }
    Ok(())
}

async fn look(connections: &Connections) -> Result<Found, OpenError> {
    let text = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = 'sysvvm'";
    let answer = connections.ask(text).await.map_err(DriverError::of_opening)?;
    let Some(row) = answer.row(0) else { return Ok(Found::Nothing) };
    match row.text(0) {
        Ok(FORMAT) => Ok(Found::Ours),
        Ok(comment) if comment.starts_with(PROGRAM) => Err(OpenError::refused(format!(
            "schema sysvvm has the comment `{comment}`: a later version of vvm made it. Use that version"
        ))),
        _ => Err(other_program()),
    }
}

fn other_program() -> OpenError {
    OpenError::refused("schema sysvvm of this database belongs to another program: use another database")
}
