//! From an address to statements that are ready, and everything that opening refuses.

mod address;
mod creation;
mod error;
mod schema;

pub(super) use address::Address;
pub use error::OpenError;

use super::driver::{Levels, Statements};
use ::scylla::{
    client::{execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
    policies::{load_balancing::DefaultPolicy, retry::FallthroughRetryPolicy},
};
use std::{collections::BTreeSet, env, fs, sync::Arc, time::Duration};

/// Where the password is looked for.
const PASSWORD: &str = "VVM_STORAGE_PASSWORD";

/// How long a request may take: as an attempt may at the default TTL of 20 s, and a little more than servers wait for
/// each other (1.8 s for the contention of a transaction).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// How long nodes may differ in their schema before that is an error.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// A node that hangs is asked no more once it has kept silent for twice as long: before the third attempt of a renewal
/// at the default TTL.
const KEEPALIVE: Duration = Duration::from_secs(1);

/// Connects, checks, prepares.
pub(super) async fn open(address: &Address) -> Result<Statements, OpenError> {
    let session = connect(address).await?;
    match schema::check(&session, address).await {
        // Created a moment ago, it may not have reached the node that was asked.
        Err(OpenError::NoKeyspace(_) | OpenError::NoTable(_)) => {
            creation::agree(&session).await?;
            schema::check(&session, address).await?;
        }
        checked => checked?,
    }
    Statements::prepare(session, &address.keyspace, &address.levels)
        .await
        .map_err(|cause| OpenError::Prepare(Box::new(cause)))
}

/// Creates what is missing: keyspace and table. May be run again, and by many at once.
///
/// # Errors
/// See [`OpenError`]: also when what is there was made otherwise.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let address = Address::parse(url)?;
    let session = connect(&address).await?;
    creation::create(&session, &address).await
}

async fn connect(address: &Address) -> Result<Session, OpenError> {
    let mut policy = DefaultPolicy::builder();
    if let Some(datacenter) = &address.datacenter {
        // A level that is local is so to the data centre of the node that is asked.
        let elsewhere_too = address.levels == Levels::Global;
        policy = policy.prefer_datacenter(datacenter.clone()).permit_dc_failover(elsewhere_too);
    }
    // Nothing is sent twice: a second time would be refused, by what the first one wrote.
    let profile = ExecutionProfile::builder()
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        .serial_consistency(Some(address.levels.serial()))
        .consistency(address.levels.commit())
        .request_timeout(Some(REQUEST_TIMEOUT))
        .load_balancing_policy(policy.build())
        .build();
    let mut builder = SessionBuilder::new()
        .known_nodes(&address.contact_points)
        .default_execution_profile_handle(profile.into_handle())
        .connection_timeout(CONNECTION_TIMEOUT)
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(KEEPALIVE)
        // Asked for where it matters.
        .auto_await_schema_agreement(false)
        .schema_agreement_timeout(AGREEMENT_TIMEOUT)
        .keyspaces_to_fetch([address.keyspace.as_str()]);
    if let Some(user) = &address.user {
        builder = builder.user(user, password(address)?);
    }
    let session = builder.build().await.map_err(|cause| OpenError::of_connecting(address, cause))?;
    check_datacenter(&session, address)?;
    Ok(session)
}

fn password(address: &Address) -> Result<String, OpenError> {
    match &address.password_file {
        Some(path) => match fs::read_to_string(path) {
            Ok(text) => Ok(text.lines().next().unwrap_or_default().to_owned()),
            Err(cause) => Err(OpenError::PasswordFile { path: path.clone(), cause }),
        },
        None => env::var(PASSWORD).map_err(|_| OpenError::NoPassword),
    }
}

fn check_datacenter(session: &Session, address: &Address) -> Result<(), OpenError> {
    let Some(wanted) = &address.datacenter else { return Ok(()) };
    let state = session.get_cluster_state();
    let there: BTreeSet<&str> =
        state.get_nodes_info().iter().filter_map(|node| node.datacenter.as_deref()).collect();
    if there.contains(wanted.as_str()) {
        return Ok(());
    }
    Err(OpenError::NoDatacenter {
        wanted: wanted.clone(),
        there: there.into_iter().collect::<Vec<_>>().join(", "),
    })
}
