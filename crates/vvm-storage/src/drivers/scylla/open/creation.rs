//! Creates keyspace and table. Several processes may do so at once, and nodes learn of it one after another.

use super::{
    super::{
        errors::{Outcome, outcome},
        rows::{COLUMNS, COLUMNS_OF_DOCUMENTS, TABLE},
    },
    Address, OpenError,
    address::Replication,
    schema,
};
use ::scylla::{
    client::session::Session,
    errors::{DbError, ExecutionError, RequestAttemptError},
    policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy},
    statement::{Consistency, unprepared::Statement},
};
use std::{fmt, sync::Arc, time::Duration};
use vvm_clock::{Clock, SystemClock};

/// How long a node may take to change the schema.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long concurrent creations may conflict, and nodes may take to learn of the table.
const TIMEOUT: Duration = Duration::from_secs(30);

const PAUSE: Duration = Duration::from_millis(100);

/// Creates what is missing, and returns when every reachable node serves it.
pub(super) async fn create(session: &Session, address: &Address) -> Result<(), OpenError> {
    let clock = SystemClock::start().map_err(OpenError::Clock)?;
    let give_up_at = clock.now().after(TIMEOUT);
    loop {
        match attempt(session, address).await {
            Err(error) if passes(&error) && clock.now() < give_up_at => clock.sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}

/// Whether the cause may be a concurrent creation, or a node that has not learned of it.
fn passes(error: &OpenError) -> bool {
    match error {
        OpenError::NoKeyspace(_) | OpenError::NoTable(_) | OpenError::BeforeDocuments(_) => true,
        OpenError::Request(cause) => is_missing(cause) || outcome(cause) != Outcome::Refused,
        _ => false,
    }
}

/// Whether the node lacks the keyspace or the table, perhaps only in its memory, or has a column already.
fn is_missing(cause: &ExecutionError) -> bool {
    matches!(cause, ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Invalid, _)))
}

async fn attempt(session: &Session, address: &Address) -> Result<(), OpenError> {
    let Address { keyspace, .. } = address;
    if !schema::keyspace_exists(session, address).await? {
        let replication = address.replication.as_ref().ok_or(OpenError::NoReplication)?;
        change(
            session,
            format!(
                "CREATE KEYSPACE IF NOT EXISTS \"{keyspace}\" \
                 WITH replication = {{'class': 'NetworkTopologyStrategy', {replication}}}"
            ),
        )
        .await?;
    }
    agree(session).await?;
    if schema::table_comment(session, address).await?.is_none() {
        let created = change(session, table(address)).await;
        agree(session).await?;
        // Another process may have been faster. The table counts, whatever this creation returned.
        if schema::table_comment(session, address).await?.is_none() {
            created?;
        }
    }
    match schema::check(session, address).await {
        Err(OpenError::BeforeDocuments(_)) => {
            extend(session, address).await?;
            schema::check(session, address).await?;
        }
        checked => checked?,
    }
    served_everywhere(session, keyspace).await
}

/// Adds the columns of documents to a table without them. Leaders can continue: existing columns do not
/// change.
async fn extend(session: &Session, address: &Address) -> Result<(), OpenError> {
    let stand = schema::columns(session, address).await?;
    for (name, of_type, kind) in COLUMNS {
        let is_missing = !stand.iter().any(|column| column.first().is_some_and(|stands| stands == name));
        if is_missing && COLUMNS_OF_DOCUMENTS.contains(&name) {
            let column = column(name, of_type, kind);
            let Address { keyspace, .. } = address;
            change(session, format!("ALTER TABLE \"{keyspace}\".{TABLE} ADD {column}")).await?;
            agree(session).await?;
        }
    }
    Ok(())
}

fn column(name: &str, of_type: &str, kind: &str) -> String {
    format!("{name} {of_type}{}", if kind == "static" { " static" } else { "" })
}

/// Checks that every reachable node serves the table. Schema agreement is not enough: a node persists a new
/// table before it has it in memory.
async fn served_everywhere(session: &Session, keyspace: &str) -> Result<(), OpenError> {
    let state = session.get_cluster_state();
    for node in state.get_nodes_info().iter().filter(|node| node.is_connected()) {
        let columns = COLUMNS.map(|(name, ..)| name).join(", ");
        let mut read =
            Statement::new(format!("SELECT {columns} FROM \"{keyspace}\".{TABLE} WHERE pk = 0x00"));
        let this_node = NodeIdentifier::Node(Arc::clone(node));
        read.set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(this_node, None)));
        read.set_consistency(Consistency::One);
        match session.query_unpaged(read, ()).await {
            Err(cause) if is_missing(&cause) => return Err(OpenError::NoTable(keyspace.to_owned())),
            // Any other error shows that the node knows the table.
            _ => {}
        }
    }
    Ok(())
}

/// Returns the statement that creates the table. The table's id follows from the keyspace. With random ids,
/// two nodes could create two tables at once, and the rows of one would be lost.
fn table(address: &Address) -> String {
    let Address { keyspace, .. } = address;
    let columns = COLUMNS.map(|(name, of_type, kind)| column(name, of_type, kind));
    format!(
        "CREATE TABLE IF NOT EXISTS \"{keyspace}\".{TABLE} ({}, PRIMARY KEY (pk, cc)) WITH id = {} AND \
         comment = '{}'",
        columns.join(", "),
        identity(keyspace),
        // CQL doubles a quote in a string.
        schema::comment(address).replace('\'', "''"),
    )
}

/// The options of a replication strategy.
impl fmt::Display for Replication {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everywhere(factor) => write!(out, "'replication_factor': {factor}"),
            Self::In(each) => {
                let each = each.iter().map(|(datacenter, factor)| format!("'{datacenter}': {factor}"));
                out.write_str(&each.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

async fn change(session: &Session, statement: String) -> Result<(), OpenError> {
    let mut statement = Statement::new(statement);
    statement.set_request_timeout(Some(CHANGE_TIMEOUT));
    session.query_unpaged(statement, ()).await.map(drop).map_err(OpenError::of_request)
}

/// Waits until all reachable nodes have the same schema.
pub(super) async fn agree(session: &Session) -> Result<(), OpenError> {
    match session.await_schema_agreement().await {
        Ok(_version) => Ok(()),
        Err(cause) => Err(OpenError::of_request(ExecutionError::SchemaAgreementError(cause))),
    }
}

/// Returns a UUID of the keyspace's name (FNV-1a, 128 bits).
fn identity(keyspace: &str) -> String {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = keyspace.bytes().fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    // Version 8, variant 1 of RFC 9562: custom bits.
    let hash = (hash & !(0xf << 76) & !(0x3 << 62)) | (0x8 << 76) | (0x2 << 62);
    let digits = format!("{hash:032x}");
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::identity;

    #[test]
    fn keyspaces_have_different_identities() {
        let one = identity("elections");
        assert_eq!(one, identity("elections"));
        assert_ne!(one, identity("Elections"));
        assert_eq!(one.len(), 36);
        assert_eq!(one.as_bytes()[14], b'8', "{one}: version");
        assert!(b"89ab".contains(&one.as_bytes()[19]), "{one}: variant");
    }
}
