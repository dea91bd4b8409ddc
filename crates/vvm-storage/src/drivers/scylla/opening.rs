//! Opening, and what `vvm doctor` shows.

use super::{
    DriverError,
    config::Address,
    connection::{LibraryTasksEnd, connect, sent_once},
    of_preparing, schema,
    statements::{Levels, Statements},
};
use crate::{
    opening::{OpenError, OpenErrorKind},
    sysvvm::Description,
};
use ::scylla::{
    client::{execution_profile::ExecutionProfileHandle, session::Session},
    cluster::metadata::{Keyspace, Strategy},
    policies::load_balancing::DefaultPolicy,
    statement::{Consistency, unprepared::Statement},
};
use futures_util::future::{Either, select};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    pin::pin,
    sync::Arc,
    time::Duration,
};
use vvm_clock::{Clock, SystemClock};

pub(super) async fn open(address: &Address) -> Result<(Statements, LibraryTasksEnd), OpenError> {
    if let Some(warning) = address.unencrypted_password() {
        tracing::warn!(keyspace = address.keyspace, "{warning}");
    }
    let (session, ending) = connect(address).await?;
    let profile = session.get_default_execution_profile_handle().clone();
    match make_ready(Arc::new(session), address, &profile).await {
        Ok(statements) => Ok((statements, ending)),
        Err(error) => {
            ending.wait().await;
            Err(error)
        }
    }
}

/// How long a session of the caller may take for all checks: its own limits of requests may be longer, or none.
const OPENING_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn open_on(session: Arc<Session>, address: &Address) -> Result<Statements, OpenError> {
    let profile = session.get_default_execution_profile_handle().pointee_to_builder();
    let profile = match &address.levels {
        Levels::Global => profile,
        Levels::Local(datacenter) => {
            let policy = DefaultPolicy::builder().prefer_datacenter(datacenter.clone());
            profile.load_balancing_policy(policy.permit_dc_failover(false).build())
        }
    };
    let profile = sent_once(profile, address);
    let opening = async {
        // The keyspace may be newer than what the session knows.
        let refreshed = session.refresh_metadata().await;
        refreshed.map_err(|cause| OpenError::passing(format!("the session knows no cluster: {cause}")))?;
        let statements = make_ready(Arc::clone(&session), address, &profile).await?;
        match session.get_cluster_state().get_keyspace(&address.keyspace) {
            Some(_) => Ok(statements),
            None => Err(OpenError::misuse(format!(
                "the session fetches no metadata of keyspace `{}`: name it in keyspaces_to_fetch, and leave \
                 fetch_schema_metadata on",
                address.keyspace
            ))),
        }
    };
    let clock = SystemClock::start().map_err(|cause| {
        OpenError::refused(format!("the system refuses the thread that waits for answers: {cause}"))
    })?;
    match select(pin!(opening), clock.sleep(OPENING_TIMEOUT)).await {
        Either::Left((opened, _)) => opened,
        Either::Right(_) => {
            Err(OpenError::passing(format!("the session did not answer within {OPENING_TIMEOUT:?}")))
        }
    }
}

async fn make_ready(
    session: Arc<Session>,
    address: &Address,
    profile: &ExecutionProfileHandle,
) -> Result<Statements, OpenError> {
    schema::check_datacenter(&session, address)?;
    match schema::check(&session, address).await {
        // A table that was just created may not have reached this node.
        Err(error) if error.kind() == OpenErrorKind::Missing => {
            schema::agree(&session).await?;
            schema::check(&session, address).await?;
        }
        checked => checked?,
    }
    schema::check_permission(&session, address).await?;
    for concern in schema::copies(&session, address)? {
        tracing::warn!(keyspace = address.keyspace, "{concern}");
    }
    let statements = Statements::prepare(session, &address.keyspace, &address.levels, profile).await;
    statements.map_err(|cause| of_preparing(&cause))
}

pub(super) fn concerns(session: &Session, address: &Address) -> Vec<String> {
    let mut concerns = schema::copies(session, address).unwrap_or_else(|refusal| vec![refusal.to_string()]);
    concerns.extend(address.unencrypted_password());
    concerns
}

/// Creates keyspace and table as far as they are missing. Several processes may do so at once.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let address = Address::parse(url)?;
    let (session, ending) = connect(&address).await?;
    let created = match schema::check_datacenter(&session, &address) {
        Ok(()) => schema::create(&session, &address).await,
        Err(error) => Err(error),
    };
    drop(session);
    ending.wait().await;
    created
}

/// Each node's version of Cassandra; of ScyllaDB, the version that it is compatible with.
const VERSIONS: [&str; 2] =
    ["SELECT release_version FROM system.local", "SELECT release_version FROM system.peers"];

const SCYLLA: &str = "SELECT version FROM system.versions WHERE key = 'local'";

/// Of Cassandra from 4.0 on.
const COMMIT_LOG: &str = "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'";

pub(super) async fn describe(session: &Session, address: &Address) -> Result<Description, DriverError> {
    let mut versions = BTreeSet::new();
    for query in VERSIONS {
        versions.extend(texts(session, query).await?);
    }
    let scylla = text(session, SCYLLA).await;
    let description = match &scylla {
        Some(version) => Description::new(format!("ScyllaDB {version}")),
        None => Description::new(format!("Apache Cassandra {}", listed(versions))),
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
        let of = |sync| with_commit_log(sync, Description::new("Apache Cassandra"));
        assert!(of(Some("periodic")).concerns[0].contains("group or batch"));
        for sync in ["batch", "group"] {
            assert_eq!(of(Some(sync)).concerns, Vec::<String>::new());
            assert_eq!(of(Some(sync)).setting("commitlog_sync"), Some(sync));
        }
        assert!(of(None).setting("commitlog_sync").unwrap().starts_with("unknown"));
    }
}
