//! Checks keyspace and table at each opening. [`super::creation`] creates them.
//!
//! The level is recorded in the table's comment, because every node has the schema, even in a data centre
//! that is cut off.

use super::{
    super::rows::{COLUMNS, COLUMNS_OF_DOCUMENTS, TABLE},
    Address, OpenError,
};
use ::scylla::{
    client::session::Session,
    statement::{Consistency, unprepared::Statement},
    value::Row,
};
use std::collections::BTreeSet;

/// The format of the rows. A change that an older version would misread raises it.
const FORMAT: u32 = 1;

const COMMENT: &str = "leader elections, format ";

const LEVEL: &str = ", always written at ";

/// Returns the comment that is recorded with the table.
pub(super) fn comment(address: &Address) -> String {
    format!("{COMMENT}{FORMAT}{LEVEL}{}", address.levels)
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
    let (format, stands) = found
        .strip_prefix(COMMENT)
        .and_then(|rest| rest.split_once(LEVEL))
        .ok_or_else(|| other("another program created it"))?;
    if format != FORMAT.to_string() {
        return Err(other(&format!("it has format {format}, and this version knows format {FORMAT}")));
    }
    if stands != levels.to_string() {
        return Err(OpenError::OtherLevel { stands: stands.to_owned(), wanted: levels.to_string() });
    }
    let columns = columns(session, address).await?;
    let ours =
        COLUMNS.map(|(name, of_type, kind)| vec![name.to_owned(), of_type.to_owned(), kind.to_owned()]);
    let ours = BTreeSet::from(ours);
    if !columns.is_subset(&ours) {
        return Err(other("it has other columns"));
    }
    let missing: Vec<_> = ours.difference(&columns).map(|column| &*column[0]).collect();
    if !missing.is_empty() {
        let is_old = missing.iter().all(|name| COLUMNS_OF_DOCUMENTS.contains(name));
        // It is being created, and this node has not all of it yet.
        let begun = OpenError::NoTable(keyspace.clone());
        return Err(if is_old { OpenError::BeforeDocuments(keyspace.clone()) } else { begun });
    }
    let ends =
        "SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?";
    let ends = rows(session, ends, (keyspace, TABLE)).await?;
    let seconds = ends.first().and_then(|row| row.columns.first()?.as_ref()?.as_int());
    if seconds.is_some_and(|seconds| seconds != 0) {
        return Err(other("its default TTL would end records by a server's clock: alter it to 0"));
    }
    Ok(())
}

/// Returns name, type and kind of each column.
pub(super) async fn columns(
    session: &Session,
    address: &Address,
) -> Result<BTreeSet<Vec<String>>, OpenError> {
    let columns = "SELECT column_name, type, kind FROM system_schema.columns WHERE keyspace_name = ? AND \
        table_name = ?";
    Ok(rows(session, columns, (&address.keyspace, TABLE)).await?.iter().map(texts).collect())
}

/// Fails if this user may not read the table: preparing a statement needs no right. Other errors are left to
/// later requests.
pub(super) async fn check_permission(session: &Session, keyspace: &str) -> Result<(), OpenError> {
    let mut read = Statement::new(format!("SELECT value FROM \"{keyspace}\".{TABLE} WHERE pk = 0x00"));
    read.set_consistency(Consistency::LocalOne);
    match session.query_unpaged(read, ()).await.map_err(OpenError::of_request) {
        Err(error @ OpenError::Unauthorized(_)) => Err(error),
        _ => Ok(()),
    }
}

pub(super) async fn keyspace_exists(session: &Session, address: &Address) -> Result<bool, OpenError> {
    let keyspaces = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?";
    Ok(!rows(session, keyspaces, (&address.keyspace,)).await?.is_empty())
}

/// `None` if there is no table.
pub(super) async fn table_comment(session: &Session, address: &Address) -> Result<Option<String>, OpenError> {
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
