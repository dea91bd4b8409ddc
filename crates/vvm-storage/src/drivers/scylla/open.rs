//! From an address to statements that are ready, and everything that opening refuses.

mod address;
mod connect;
mod creation;
mod ending;
mod error;
mod obstacle;
mod replication;
mod schema;
mod statements;
mod tls;

pub(super) use address::Address;
pub(super) use ending::Ending;
pub use error::OpenError;
pub(super) use statements::{Levels, MAX_PAGE, Statements};

use ::scylla::client::session::Session;

/// Where the password is looked for.
const PASSWORD: &str = "VVM_STORAGE_PASSWORD";

/// Connects, checks, prepares.
pub(super) async fn open(address: &Address) -> Result<(Statements, Ending), OpenError> {
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
    replication::check_datacenter(&session, address)?;
    match schema::check(&session, address).await {
        // Created a moment ago, it may not have reached the node that was asked.
        Err(OpenError::NoKeyspace(_) | OpenError::NoTable(_) | OpenError::BeforeDocuments(_)) => {
            creation::agree(&session).await?;
            schema::check(&session, address).await?;
        }
        checked => checked?,
    }
    schema::check_permission(&session, &address.keyspace).await?;
    for concern in replication::check(&session, address)? {
        tracing::warn!(keyspace = address.keyspace, "{concern}");
    }
    let statements = Statements::prepare(session, &address.keyspace, &address.levels).await;
    statements.map_err(|cause| OpenError::Prepare(Box::new(cause)))
}

/// What is unwise about how many copies of a record there are, and where.
pub(super) fn concerns(session: &Session, address: &Address) -> Vec<String> {
    match replication::check(session, address) {
        Ok(concerns) => concerns,
        Err(refusal) => vec![refusal.to_string()],
    }
}

/// Creates what is missing: keyspace, table, columns. May be run again, and by many at once.
///
/// # Errors
/// See [`OpenError`]: also when what is there was made otherwise.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let address = Address::parse(url)?;
    let (session, ending) = connect::connect(&address).await?;
    let created = match replication::check_datacenter(&session, &address) {
        Ok(()) => creation::create(&session, &address).await,
        Err(error) => Err(error),
    };
    drop(session);
    ending.wait().await;
    created
}
