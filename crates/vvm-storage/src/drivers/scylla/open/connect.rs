//! Connects to a cluster: nodes, login, TLS, timeouts.

use super::{
    Address, Levels, OpenError,
    ending::{Ending, Watch},
};
use crate::drivers::password;
use ::scylla::{
    client::{execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
    policies::{load_balancing::DefaultPolicy, retry::FallthroughRetryPolicy},
};
use std::{sync::Arc, time::Duration};

const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// How long nodes may disagree on the schema.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// A node that has been silent for twice this is not used any more: before the third attempt of a renewal at
/// the default TTL.
const KEEPALIVE: Duration = Duration::from_secs(1);

/// Connects. Also returns what waits for the end of the connections.
pub(super) async fn connect(address: &Address) -> Result<(Session, Ending), OpenError> {
    let mut policy = DefaultPolicy::builder();
    if let Some(datacenter) = &address.datacenter {
        // A local level refers to the data centre of the node that coordinates.
        let elsewhere_too = address.levels == Levels::Global;
        policy = policy.prefer_datacenter(datacenter.clone()).permit_dc_failover(elsewhere_too);
    }
    // No retries: the second request would be refused by what the first one wrote. No timestamps: the cells
    // of a transaction get its ballot.
    let profile = ExecutionProfile::builder()
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        .serial_consistency(Some(address.levels.serial()))
        .consistency(address.levels.commit())
        .request_timeout(Some(address.request_timeout))
        .load_balancing_policy(policy.build())
        .build();
    let (watch, ending) = Watch::new();
    let mut builder = SessionBuilder::new()
        .known_nodes(&address.contact_points)
        .default_execution_profile_handle(profile.into_handle())
        .connection_timeout(CONNECTION_TIMEOUT)
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(KEEPALIVE)
        .address_translator(Arc::new(watch))
        // `creation` awaits agreement where it matters.
        .auto_await_schema_agreement(false)
        .schema_agreement_timeout(AGREEMENT_TIMEOUT)
        .keyspaces_to_fetch([address.keyspace.as_str()]);
    if let Some(user) = &address.user {
        builder = builder.user(user, password(address)?);
    }
    if let Some(tls) = &address.tls {
        builder = builder.tls_context(Some(Arc::new(tls.read().map_err(OpenError::of_file)?)));
    }
    let built = builder.build().await;
    // It keeps what `ending` waits for.
    drop(builder);
    match built {
        Ok(session) => Ok((session, ending)),
        Err(cause) => {
            ending.wait().await;
            Err(OpenError::of_connecting(address, cause))
        }
    }
}

fn password(address: &Address) -> Result<String, OpenError> {
    let password = password::password(address.password_file.as_deref());
    password.map_err(|(path, cause)| OpenError::PasswordFile { path, cause })?.ok_or(OpenError::NoPassword)
}
