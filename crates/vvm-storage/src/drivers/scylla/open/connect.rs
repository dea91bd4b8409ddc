//! Connections to a cluster: whom to ask, how to log in, how long to wait.

use super::{
    Address, Levels, OpenError, PASSWORD,
    ending::{Ending, Watch},
};
use ::scylla::{
    client::{execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
    policies::{load_balancing::DefaultPolicy, retry::FallthroughRetryPolicy},
};
use std::{env, fs, sync::Arc, time::Duration};

const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// How long nodes may differ in their schema before that is an error.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// A node that hangs is asked no more once it has kept silent for twice as long: before the third attempt of
/// a renewal at the default TTL.
const KEEPALIVE: Duration = Duration::from_secs(1);

/// Connections, and what tells when they have ended.
pub(super) async fn connect(address: &Address) -> Result<(Session, Ending), OpenError> {
    let mut policy = DefaultPolicy::builder();
    if let Some(datacenter) = &address.datacenter {
        // A level that is local is so to the data centre of the node that is asked.
        let elsewhere_too = address.levels == Levels::Global;
        policy = policy.prefer_datacenter(datacenter.clone()).permit_dc_failover(elsewhere_too);
    }
    // Nothing is sent twice: a second time would be refused, by what the first one wrote. And nothing is sent
    // with a time of ours: that of a transaction's cells is its ballot.
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
        // Asked for where it matters.
        .auto_await_schema_agreement(false)
        .schema_agreement_timeout(AGREEMENT_TIMEOUT)
        .keyspaces_to_fetch([address.keyspace.as_str()]);
    if let Some(user) = &address.user {
        builder = builder.user(user, password(address)?);
    }
    if let Some(tls) = &address.tls {
        builder = builder.tls_context(Some(tls.read()?));
    }
    let built = builder.build().await;
    // It holds what the ending waits for.
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
    let password = match &address.password_file {
        Some(path) => match fs::read_to_string(path) {
            Ok(text) => text.lines().next().map(str::to_owned),
            Err(cause) => return Err(OpenError::PasswordFile { path: path.clone(), cause }),
        },
        None => env::var(PASSWORD).ok(),
    };
    password.filter(|password| !password.is_empty()).ok_or(OpenError::NoPassword)
}
