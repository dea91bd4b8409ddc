//! Keyspace and table: created when asked to, and checked whenever they are opened.
//!
//! The schema is what all nodes have, also those of a data centre that is cut off: that is why the table's comment says
//! at which level it is written.

use super::{
    super::rows::{COLUMNS, TABLE},
    Address, OpenError,
    address::Replication,
};
use ::scylla::{
    client::session::Session, errors::ExecutionError, statement::unprepared::Statement, value::Row,
};
use std::{collections::BTreeSet, time::Duration};

/// Every node has to hear of a change.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);

/// A change of the columns that an older version would misread raises the number.
const COMMENT: &str = "leader elections, format 1, always written at ";

fn comment(address: &Address) -> String {
    // A quote in a string of CQL is doubled.
    format!("{COMMENT}{}", address.levels).replace('\'', "''")
}

pub(super) async fn create(session: &Session, address: &Address) -> Result<(), OpenError> {
    let Address { keyspace, .. } = address;
    if !keyspace_exists(session, address).await? {
        let replication = address.replication.as_ref().ok_or(OpenError::NoReplication)?;
        let class = match replication {
            Replication::Everywhere(factor) => format!("'replication_factor': {factor}"),
            Replication::In(each) => {
                let each = each.iter().map(|(datacenter, factor)| format!("'{datacenter}': {factor}"));
                each.collect::<Vec<_>>().join(", ")
            }
        };
        change(
            session,
            format!(
                "CREATE KEYSPACE IF NOT EXISTS \"{keyspace}\" \
                 WITH replication = {{'class': 'NetworkTopologyStrategy', {class}}}"
            ),
        )
        .await?;
    }
    if table_comment(session, address).await?.is_some() {
        return Ok(());
    }
    let columns = COLUMNS.map(|(name, of_type, kind)| {
        format!("{name} {of_type}{}", if kind == "static" { " static" } else { "" })
    });
    let created = change(
        session,
        // Its identity follows from its name. Otherwise each node that is asked to create it at the same time makes up one
        // of its own, and the table of the loser is lost with what was written to it.
        format!(
            "CREATE TABLE IF NOT EXISTS \"{keyspace}\".{TABLE} ({}, PRIMARY KEY (pk, cc)) \
             WITH id = {} AND comment = '{}'",
            columns.join(", "),
            identity(keyspace),
            comment(address),
        ),
    )
    .await;
    match created {
        // Somebody else was a little faster: what counts is what is there now.
        Err(_) if table_comment(session, address).await?.is_some() => Ok(()),
        other => other,
    }
}

pub(super) async fn check(session: &Session, address: &Address) -> Result<(), OpenError> {
    let Address { keyspace, levels, .. } = address;
    let Some(found) = table_comment(session, address).await? else {
        return Err(if keyspace_exists(session, address).await? {
            OpenError::NoTable(keyspace.clone())
        } else {
            OpenError::NoKeyspace(keyspace.clone())
        });
    };
    let other = |why: &str| OpenError::OtherTable { keyspace: keyspace.clone(), why: why.to_owned() };
    let stands = found.strip_prefix(COMMENT).ok_or_else(|| other("its comment is not ours"))?;
    if stands != levels.to_string() {
        return Err(OpenError::OtherLevel { stands: stands.to_owned(), wanted: levels.to_string() });
    }
    let columns = "SELECT column_name, type, kind FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?";
    let columns: BTreeSet<_> = rows(session, columns, (keyspace, TABLE)).await?.iter().map(texts).collect();
    let ours =
        COLUMNS.map(|(name, of_type, kind)| vec![name.to_owned(), of_type.to_owned(), kind.to_owned()]);
    if columns != BTreeSet::from(ours) {
        return Err(other("it has other columns"));
    }
    let ends =
        "SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?";
    let ends = rows(session, ends, (keyspace, TABLE)).await?;
    let seconds = ends.first().and_then(|row| row.columns.first()?.as_ref()?.as_int());
    if seconds.is_some_and(|seconds| seconds != 0) {
        return Err(other("a default TTL would end records by a server's clock: alter it to 0"));
    }
    Ok(())
}

async fn keyspace_exists(session: &Session, address: &Address) -> Result<bool, OpenError> {
    let keyspaces = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?";
    Ok(!rows(session, keyspaces, (&address.keyspace,)).await?.is_empty())
}

/// `None` if there is no table.
async fn table_comment(session: &Session, address: &Address) -> Result<Option<String>, OpenError> {
    let comments = "SELECT comment FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?";
    let comments = rows(session, comments, (&address.keyspace, TABLE)).await?;
    Ok(comments.first().map(|row| texts(row).concat()))
}

async fn rows(
    session: &Session,
    query: &str,
    values: impl ::scylla::serialize::row::SerializeRow,
) -> Result<Vec<Row>, OpenError> {
    let answer = session.query_unpaged(query, values).await.map_err(OpenError::of_request)?;
    let unreadable = |cause: String| OpenError::Unreadable(cause);
    let rows = answer.into_rows_result().map_err(|cause| unreadable(cause.to_string()))?;
    let rows = rows.rows::<Row>().map_err(|cause| unreadable(cause.to_string()))?;
    rows.collect::<Result<_, _>>().map_err(|cause| unreadable(cause.to_string()))
}

fn texts(row: &Row) -> Vec<String> {
    let text = |column: &Option<::scylla::value::CqlValue>| {
        column.as_ref().and_then(|value| value.as_text()).cloned().unwrap_or_default()
    };
    row.columns.iter().map(text).collect()
}

/// Changes the schema, and waits until all nodes that can be reached have it.
async fn change(session: &Session, statement: String) -> Result<(), OpenError> {
    let mut statement = Statement::new(statement);
    statement.set_request_timeout(Some(CHANGE_TIMEOUT));
    let changed = session.query_unpaged(statement, ()).await;
    session
        .await_schema_agreement()
        .await
        .map_err(|cause| OpenError::of_request(ExecutionError::SchemaAgreementError(cause)))?;
    changed.map(drop).map_err(OpenError::of_request)
}

/// A UUID of the keyspace's name (FNV-1a, 128 bits): tables of two keyspaces are told apart.
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
    fn keyspaces_have_identities_of_their_own() {
        let one = identity("elections");
        assert_eq!(one, identity("elections"));
        assert_ne!(one, identity("Elections"));
        assert_eq!(one.len(), 36);
        assert_eq!(one.as_bytes()[14], b'8', "{one}: version");
        assert!(b"89ab".contains(&one.as_bytes()[19]), "{one}: variant");
    }
}
