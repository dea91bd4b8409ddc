//! Whether the schema is there and ours, and its creation.

use super::{
    super::rows::{FORMAT, creation, raise_max_ttl},
    Connections, OpenError,
};
use ielections::Ttl;

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
        Found::Nothing => Err(OpenError::NoSchema { database: connections.address().database.clone() }),
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
            return Err(OpenError::of_request(error));
        }
    }
    if let Some(max_ttl) = max_ttl {
        connections.ask(&raise_max_ttl(max_ttl)).await.map_err(OpenError::of_request)?;
    }
    Ok(())
}

async fn look(connections: &Connections) -> Result<Found, OpenError> {
    let text = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = 'sysvvm'";
    let answer = connections.ask(text).await.map_err(OpenError::of_request)?;
    let Some(row) = answer.row(0) else { return Ok(Found::Nothing) };
    match row.text(0) {
        Ok(FORMAT) => Ok(Found::Ours),
        Ok(comment) if comment.starts_with(PROGRAM) => Err(OpenError::Newer { comment: comment.to_owned() }),
        _ => Err(OpenError::OtherProgram),
    }
}
