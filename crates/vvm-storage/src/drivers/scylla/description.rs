//! The description of a cluster, from the system tables of one node.
//!
//! Every user may read versions and schema. What this user may not read is left out.

use super::{address::Address, errors::DriverError, open::concerns};
use crate::sysvvm::Description;
use ::scylla::{
    client::session::Session,
    cluster::metadata::{Keyspace, Strategy},
    statement::{Consistency, unprepared::Statement},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

/// Each node's version of Cassandra; of ScyllaDB, the version that it is compatible with.
const VERSIONS: [&str; 2] =
    ["SELECT release_version FROM system.local", "SELECT release_version FROM system.peers"];

/// ScyllaDB's own version.
const SCYLLA: &str = "SELECT version FROM system.versions WHERE key = 'local'";

/// Of Cassandra from 4.0 on.
const COMMIT_LOG: &str = "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'";

/// Returns software, levels, nodes, copies, and what a power cut may lose.
pub(super) async fn describe(session: &Session, address: &Address) -> Result<Description, DriverError> {
    let mut versions = BTreeSet::new();
    for query in VERSIONS {
        versions.extend(texts(session, query).await?);
    }
    let scylla = text(session, SCYLLA).await;
    let description = match &scylla {
        Some(version) => Description::of(format!("ScyllaDB {version}")),
        None => Description::of(format!("Apache Cassandra {}", listed(versions))),
    };
    let state = session.get_cluster_state();
    let nodes = state.get_nodes_info();
    let connected = nodes.iter().filter(|node| node.is_connected()).count();
    let datacenters: BTreeSet<_> = nodes.iter().filter_map(|node| node.datacenter.as_deref()).collect();
    let mut description = description
        .with("serial level", &address.levels)
        .with("commit level", format!("{:?}", address.levels.commit()).to_uppercase())
        .with("nodes", format!("{} ({connected} connected)", nodes.len()))
        .with("data centres", listed(datacenters));
    if let Some(keyspace) = state.get_keyspace(&address.keyspace) {
        description = of_keyspace(keyspace, description);
    }
    // ScyllaDB always syncs lightweight transactions.
    if scylla.is_none() {
        description = with_commit_log(text(session, COMMIT_LOG).await.as_deref(), description);
    }
    Ok(concerns(session, address).into_iter().fold(description, Description::concerned))
}

fn of_keyspace(keyspace: &Keyspace, description: Description) -> Description {
    let copies = match &keyspace.strategy {
        Strategy::SimpleStrategy { replication_factor } => format!("{replication_factor} (SimpleStrategy)"),
        Strategy::NetworkTopologyStrategy { datacenter_repfactors } => {
            let each: BTreeMap<_, _> = datacenter_repfactors.iter().collect();
            listed(each.into_iter().map(|(datacenter, copies)| format!("{datacenter}: {copies}")))
        }
        other => format!("{other:?}"),
    };
    let tablets = if keyspace.tablet_based { "yes" } else { "no" };
    let description = description.with("copies", copies).with("tablets", tablets);
    if keyspace.durable_writes {
        return description;
    }
    description.concerned(
        "the keyspace has durable_writes = false: a node that ends loses leader records and epochs. \
         ALTER KEYSPACE … WITH durable_writes = true",
    )
}

fn with_commit_log(sync: Option<&str>, description: Description) -> Description {
    match sync {
        Some("periodic") => description.with("commitlog_sync", "periodic").concerned(
            "commitlog_sync is periodic: a power cut of a whole quorum may lose the last seconds, with \
             epochs. Set it to group or batch in cassandra.yaml of every node, or make sure that no power \
             cut hits a quorum",
        ),
        Some(sync) => description.with("commitlog_sync", sync),
        None => description
            .with("commitlog_sync", "unknown (before Cassandra 4.0, or no right to SELECT on system_views)"),
    }
}

fn listed(items: impl IntoIterator<Item = impl Display>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

async fn texts(session: &Session, query: &str) -> Result<Vec<String>, DriverError> {
    let mut statement = Statement::new(query);
    // LOCAL_ONE: with `serial=local` only nodes of one data centre may be used.
    statement.set_consistency(Consistency::LocalOne);
    let answer = session.query_unpaged(statement, ()).await?;
    let unreadable = |cause: Box<dyn std::error::Error + Send + Sync>| DriverError::Unreadable(cause);
    let rows = answer.into_rows_result().map_err(|cause| unreadable(cause.into()))?;
    let rows = rows.rows::<(Option<String>,)>().map_err(|cause| unreadable(cause.into()))?;
    Ok(rows.filter_map(|row| row.ok()?.0).collect())
}

/// `None` if there is no such table, or this user may not read it.
async fn text(session: &Session, query: &str) -> Option<String> {
    texts(session, query).await.ok()?.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periodic_sync_of_the_commit_log_is_a_concern() {
        let of = |sync| with_commit_log(sync, Description::of("Apache Cassandra"));
        assert!(of(Some("periodic")).concerns[0].contains("group or batch"));
        for sync in ["batch", "group"] {
            assert_eq!(of(Some(sync)).concerns, Vec::<String>::new());
            assert_eq!(of(Some(sync)).setting("commitlog_sync"), Some(sync));
        }
        assert!(of(None).setting("commitlog_sync").unwrap().starts_with("unknown"));
    }
}
