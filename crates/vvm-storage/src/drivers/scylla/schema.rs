//! Checks keyspace, table and copies at each opening, and creates what is missing. Nodes learn of it one after another.
//! The level is in the table's comment, because every node has the schema, even in a data centre that is cut off.

use super::{
    config::Address,
    of_opening,
    rows::{COLUMNS, TABLE},
    statements::Levels,
};
use crate::opening::{OpenError, OpenErrorKind};
use ::scylla::{
    client::session::Session,
    cluster::metadata::Strategy,
    errors::{DbError, ExecutionError, RequestAttemptError},
    policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy},
    statement::{Consistency, unprepared::Statement},
    value::Row,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use vvm_clock::{Clock, SystemClock};

/// The format of the rows. A change that an older version would misread raises it.
const FORMAT: u32 = 1;

const COMMENT: &str = "leader elections, format ";

const LEVEL: &str = ", always written at ";

pub(super) fn comment(address: &Address) -> String {
    format!("{COMMENT}{FORMAT}{LEVEL}{}", address.levels)
}

fn no_table(keyspace: &str) -> OpenError {
    OpenError::missing(format!(
        "keyspace `{keyspace}` has no table for elections: run `vvm init-storage` with this URL"
    ))
}

pub(super) async fn check(session: &Session, address: &Address) -> Result<(), OpenError> {
    let Address { keyspace, levels, .. } = address;
    let Some(found) = table_comment(session, address).await? else {
        return Err(if keyspace_exists(session, address).await? {
            no_table(keyspace)
        } else {
            OpenError::missing(format!(
                "there is no keyspace `{keyspace}`: run `vvm init-storage` with this URL and replication=3, \
                 or correct the name"
            ))
        });
    };
    let other = |why: &str| {
        OpenError::refused(format!(
            "table sysvvm in keyspace `{keyspace}` can't be used for elections: {why}. Use another keyspace"
        ))
    };
    let (format, stands) = found
        .strip_prefix(COMMENT)
        .and_then(|rest| rest.split_once(LEVEL))
        .ok_or_else(|| other("another program created it"))?;
    if format != FORMAT.to_string() {
        return Err(other(&format!("it has format {format}, and this version knows format {FORMAT}")));
    }
    if stands != levels.to_string() {
        return Err(OpenError::refused(format!(
            "this table is written at {stands}, not at {levels}: two levels do not see each other, and both \
             could lead. Use the same serial= and datacenter= as the other candidates, or another keyspace"
        )));
    }
    let columns = "SELECT column_name, type, kind FROM system_schema.columns WHERE keyspace_name = ? AND \
        table_name = ?";
    let columns: Vec<_> = rows(session, columns, (keyspace, TABLE)).await?.iter().map(texts).collect();
    let is_ours =
        |column: &Vec<String>| COLUMNS.iter().any(|&(name, of_type, kind)| *column == [name, of_type, kind]);
    if !columns.iter().all(is_ours) {
        return Err(other("it has other columns"));
    }
    if columns.len() < COLUMNS.len() {
        // It is being created, and this node has not all of it yet.
        return Err(no_table(keyspace));
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

/// Fails if this user may not read the table: preparing a statement needs no right. Later requests show other errors.
pub(super) async fn check_permission(session: &Session, address: &Address) -> Result<(), OpenError> {
    let read = format!("SELECT value FROM \"{}\".{TABLE} WHERE pk = 0x00", address.keyspace);
    is_permitted(session, address, read).await
}

/// As [`check_permission`], for a leader's writes. This one has no row to change.
pub(super) async fn check_permission_to_lead(session: &Session, address: &Address) -> Result<(), OpenError> {
    let write = format!("UPDATE \"{}\".{TABLE} SET epoch = 0 WHERE pk = 0x00 IF epoch = 0", address.keyspace);
    is_permitted(session, address, write).await
}

fn of_keyspace(address: &Address) -> String {
    format!("KEYSPACE \"{}\"", address.keyspace)
}

async fn is_permitted(session: &Session, address: &Address, statement: String) -> Result<(), OpenError> {
    let mut statement = Statement::new(statement);
    statement.set_consistency(Consistency::LocalOne);
    match session.query_unpaged(statement, ()).await {
        Err(cause) if says(&cause, &DbError::Unauthorized) => {
            Err(lacks(address, &["SELECT", "MODIFY"], &of_keyspace(address), &cause))
        }
        _ => Ok(()),
    }
}

/// Says how the user gets these rights, if the cause is that it lacks one.
fn lacks(address: &Address, rights: &[&str], place: &str, cause: &ExecutionError) -> OpenError {
    match cause {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Unauthorized, why)) => {
            let user = address.user.as_deref().unwrap_or("USER");
            let grants: Vec<_> =
                rights.iter().map(|right| format!("GRANT {right} ON {place} TO \"{user}\"")).collect();
            OpenError::refused(format!(
                "this user lacks a right: {why}. As an administrator of the cluster: {}",
                grants.join("; ")
            ))
        }
        _ => of_opening(cause),
    }
}

pub(super) async fn keyspace_exists(session: &Session, address: &Address) -> Result<bool, OpenError> {
    let keyspaces = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?";
    Ok(!rows(session, keyspaces, (&address.keyspace,)).await?.is_empty())
}

pub(super) async fn table_comment(session: &Session, address: &Address) -> Result<Option<String>, OpenError> {
    let comments = "SELECT comment FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?";
    let comments = rows(session, comments, (&address.keyspace, TABLE)).await?;
    Ok(comments.first().map(|row| texts(row).concat()))
}

pub(super) async fn rows(
    session: &Session,
    query: &str,
    values: impl ::scylla::serialize::row::SerializeRow,
) -> Result<Vec<Row>, OpenError> {
    let answer = session.query_unpaged(query, values).await.map_err(|cause| of_opening(&cause))?;
    let unreadable =
        |cause: String| OpenError::refused(format!("an answer of the cluster can't be read: {cause}"));
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

/// How long a node may take to change the schema.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long concurrent creations may conflict, and nodes may take to learn of the table.
const TIMEOUT: Duration = Duration::from_secs(30);

const PAUSE: Duration = Duration::from_millis(100);

/// Creates what is missing, and returns when every reachable node serves it.
pub(super) async fn create(session: &Session, address: &Address) -> Result<(), OpenError> {
    let clock = SystemClock::start().map_err(|cause| {
        OpenError::refused(format!(
            "a clock's thread can't be started ({cause}): raise this process's limits"
        ))
    })?;
    let give_up_at = clock.now().after(TIMEOUT);
    loop {
        match attempt(session, address).await {
            Err(error) if passes(&error) && clock.now() < give_up_at => clock.sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}

fn passes(error: &OpenError) -> bool {
    matches!(error.kind(), OpenErrorKind::Missing | OpenErrorKind::Passing)
}

fn says(cause: &ExecutionError, word: &DbError) -> bool {
    matches!(cause, ExecutionError::LastAttemptError(RequestAttemptError::DbError(said, _)) if said == word)
}

async fn attempt(session: &Session, address: &Address) -> Result<(), OpenError> {
    let Address { keyspace, .. } = address;
    if !keyspace_exists(session, address).await? {
        let copies = address.replication.ok_or_else(|| {
            OpenError::refused(
                "the number of copies in each data centre is missing: add replication=3, or CREATE KEYSPACE \
                 with others",
            )
        })?;
        change(
            session,
            (address, "ALL KEYSPACES"),
            format!(
                "CREATE KEYSPACE IF NOT EXISTS \"{keyspace}\" \
                 WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': {copies}}}"
            ),
        )
        .await?;
    }
    agree(session).await?;
    if table_comment(session, address).await?.is_none() {
        let created = change(session, (address, &of_keyspace(address)), table(address)).await;
        agree(session).await?;
        // Another process may have been faster. The table counts, whatever this creation returned.
        if table_comment(session, address).await?.is_none() {
            created?;
        }
    }
    check(session, address).await?;
    served_everywhere(session, keyspace).await?;
    check_permission_to_lead(session, address).await
}

/// Checks that every reachable node serves the table. Nodes agree on a schema before they have it in memory.
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
            Err(cause) if says(&cause, &DbError::Invalid) => return Err(no_table(keyspace)),
            // No other error denies that the node knows the table.
            _ => {}
        }
    }
    Ok(())
}

/// The table's id follows from the keyspace. With random ids, two nodes could create two tables, and lose one's rows.
fn table(address: &Address) -> String {
    let Address { keyspace, .. } = address;
    let columns = COLUMNS.map(|(name, of_type, kind)| {
        format!("{name} {of_type}{}", if kind == "static" { " static" } else { "" })
    });
    format!(
        "CREATE TABLE IF NOT EXISTS \"{keyspace}\".{TABLE} ({}, PRIMARY KEY (pk, cc)) WITH id = {} AND \
         comment = '{}'",
        columns.join(", "),
        identity(keyspace),
        // CQL doubles a quote in a string.
        comment(address).replace('\'', "''"),
    )
}

async fn change(
    session: &Session,
    (address, place): (&Address, &str),
    statement: String,
) -> Result<(), OpenError> {
    let mut statement = Statement::new(statement);
    statement.set_request_timeout(Some(CHANGE_TIMEOUT));
    let changed = session.query_unpaged(statement, ()).await;
    changed.map(drop).map_err(|cause| lacks(address, &["CREATE"], place, &cause))
}

pub(super) async fn agree(session: &Session) -> Result<(), OpenError> {
    match session.await_schema_agreement().await {
        Ok(_version) => Ok(()),
        Err(cause) => Err(of_opening(&ExecutionError::SchemaAgreementError(cause))),
    }
}

/// A UUID of the keyspace's name (FNV-1a, 128 bits).
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

pub(super) fn check_datacenter(session: &Session, address: &Address) -> Result<(), OpenError> {
    let Some(wanted) = &address.datacenter else { return Ok(()) };
    let state = session.get_cluster_state();
    let there: BTreeSet<&str> =
        state.get_nodes_info().iter().filter_map(|node| node.datacenter.as_deref()).collect();
    if there.contains(wanted.as_str()) {
        return Ok(());
    }
    Err(OpenError::refused(format!(
        "there is no data centre `{wanted}`; there are: {}",
        there.into_iter().collect::<Vec<_>>().join(", ")
    )))
}

/// Before the repair, a quorum may lie on new copies, which are empty.
const CHANGE: &str = "Stop all candidates, ALTER KEYSPACE, then `nodetool repair --full` on each node";

/// What is unwise about the keyspace. Fails if the data centre of a local level has no copies.
pub(super) fn copies(session: &Session, address: &Address) -> Result<Vec<String>, OpenError> {
    let state = session.get_cluster_state();
    let datacenters: BTreeSet<_> =
        state.get_nodes_info().iter().filter_map(|node| node.datacenter.as_deref()).collect();
    match state.get_keyspace(&address.keyspace) {
        Some(keyspace) => judge(&keyspace.strategy, &address.levels, datacenters.len(), &address.keyspace),
        // It was just dropped. The next request reports that.
        None => Ok(Vec::new()),
    }
}

fn judge(
    strategy: &Strategy,
    levels: &Levels,
    datacenters: usize,
    keyspace: &str,
) -> Result<Vec<String>, OpenError> {
    let mut concerns = Vec::new();
    let copies = match (strategy, levels) {
        (Strategy::NetworkTopologyStrategy { datacenter_repfactors }, Levels::Local(datacenter)) => {
            match datacenter_repfactors.get(datacenter) {
                Some(copies) if *copies > 0 => *copies,
                _ => {
                    let there: BTreeMap<_, _> =
                        datacenter_repfactors.iter().filter(|(_, copies)| **copies > 0).collect();
                    let there = there.into_iter().map(|(name, copies)| format!("{name}: {copies}"));
                    return Err(OpenError::refused(format!(
                        "keyspace `{keyspace}` has no copies in data centre `{datacenter}`, so it has no \
                         quorum there; it has {}. Name one of these with datacenter=, or ALTER KEYSPACE",
                        there.collect::<Vec<_>>().join(", ")
                    )));
                }
            }
        }
        (Strategy::NetworkTopologyStrategy { datacenter_repfactors }, Levels::Global) => {
            datacenter_repfactors.values().sum()
        }
        (Strategy::SimpleStrategy { replication_factor }, _) => {
            if datacenters > 1 {
                let why = "SimpleStrategy puts copies into random data centres: use NetworkTopologyStrategy";
                concerns.push(format!("{why}. {CHANGE}"));
            }
            *replication_factor
        }
        // An unknown strategy.
        _ => return Ok(Vec::new()),
    };
    match copies {
        1 => concerns.push(format!(
            "there is one copy of each record: while its node is down no candidate leads, and if its disk is \
             lost so are the epochs. Three copies let one node fail. {CHANGE}"
        )),
        2 => concerns.push(format!(
            "there are two copies of each record, and both nodes must answer: three let one node fail. {CHANGE}"
        )),
        _ => {}
    }
    Ok(concerns)
}

#[cfg(test)]
mod tests {
    use super::{identity, *};

    #[test]
    fn keyspaces_have_different_identities() {
        let one = identity("elections");
        assert_eq!(one, identity("elections"));
        assert_ne!(one, identity("Elections"));
        assert_eq!(one.len(), 36);
        assert_eq!(one.as_bytes()[14], b'8', "{one}: version");
        assert!(b"89ab".contains(&one.as_bytes()[19]), "{one}: variant");
    }

    fn network(each: &[(&str, usize)]) -> Strategy {
        let each = each.iter().map(|(name, copies)| ((*name).to_owned(), *copies));
        Strategy::NetworkTopologyStrategy { datacenter_repfactors: each.collect() }
    }

    #[test]
    fn fewer_than_three_copies_are_a_concern() {
        let concerns = |strategy: &Strategy, datacenters| {
            judge(strategy, &Levels::Global, datacenters, "keyspace").unwrap().join("\n")
        };
        assert_eq!(concerns(&network(&[("dc1", 3)]), 1), "");
        assert!(concerns(&network(&[("dc1", 1)]), 1).contains("one copy"));
        assert!(concerns(&network(&[("dc1", 1), ("dc2", 1)]), 2).contains("two copies"));
        let simple = Strategy::SimpleStrategy { replication_factor: 3 };
        assert_eq!(concerns(&simple, 1), "");
        assert!(concerns(&simple, 2).contains("random data centres"));
    }

    #[test]
    fn local_level_needs_copies_in_its_data_centre() {
        let judge =
            |strategy, datacenter: &str| judge(strategy, &Levels::Local(datacenter.into()), 2, "keyspace");
        let both = network(&[("dc1", 3), ("dc2", 0)]);
        assert_eq!(judge(&both, "dc1").unwrap(), [""; 0]);
        let error = judge(&both, "dc2").unwrap_err().to_string();
        assert!(error.contains("dc1: 3"), "{error}");
    }
}
