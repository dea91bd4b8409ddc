//! Connects to a keyspace, prepares the statements, and refuses tables of other programs and levels.

use super::{
    address::Address,
    connect::{self, Ending},
    errors, schema,
    statements::Statements,
};
use crate::open_error::{OpenError, OpenErrorKind};
use ::scylla::client::session::Session;

/// Connects, checks keyspace and table, and prepares the statements.
pub(super) async fn open(address: &Address) -> Result<(Statements, Ending), OpenError> {
    if let Some(warning) = address.unencrypted_password() {
        tracing::warn!(keyspace = address.keyspace, "{warning}");
    }
    let (session, ending) = connect::connect(address).await?;
    match make_ready(session, address).await {
        Ok(statements) => Ok((statements, ending)),
        Err(error) => {
            ending.wait().await;
            Err(error)
        }
    }
}

async fn make_ready(session: Session, address: &Address) -> Result<Statements, OpenError> {
    schema::check_datacenter(&session, address)?;
    match schema::check(&session, address).await {
        // A table that was just created may not have reached this node.
        Err(error) if error.kind() == OpenErrorKind::Missing => {
            schema::agree(&session).await?;
            schema::check(&session, address).await?;
        }
        checked => checked?,
    }
    schema::check_permission(&session, &address.keyspace).await?;
    for concern in schema::copies(&session, address)? {
        tracing::warn!(keyspace = address.keyspace, "{concern}");
    }
    let statements = Statements::prepare(session, &address.keyspace, &address.levels).await;
    statements.map_err(|cause| errors::of_preparing(&cause))
}

/// Returns what is unwise about the copies of records and about the connection.
pub(super) fn concerns(session: &Session, address: &Address) -> Vec<String> {
    let mut concerns = schema::copies(session, address).unwrap_or_else(|refusal| vec![refusal.to_string()]);
    concerns.extend(address.unencrypted_password());
    concerns
}

/// Creates keyspace, table and columns as far as they are missing. May be run again, and by several processes
/// at once.
///
/// # Errors
/// See [`OpenError`]; also if the keyspace was created with other settings.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let address = Address::parse(url)?;
    let (session, ending) = connect::connect(&address).await?;
    let created = match schema::check_datacenter(&session, &address) {
        Ok(()) => schema::create(&session, &address).await,
        Err(error) => Err(error),
    };
    drop(session);
    ending.wait().await;
    created
}
