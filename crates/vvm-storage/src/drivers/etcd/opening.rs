//! A storage is known by one key, checked at each opening and created by `vvm init-storage`: a format and random bytes.

use super::{
    DriverError,
    config::Address,
    connection::{Connections, STATUS},
    messages::{StatusRequest, StatusResponse, TxnRequest},
    rows::{FORMAT, Keyspace, PROGRAM},
};
use crate::{
    key::{ElectionKey, SlotNumber},
    opening::OpenError,
    step::Step,
    sysvvm::Description,
};
use bytes::Bytes;
use ielections::{Epoch, Incarnation};
use std::time::Duration;

pub(super) async fn open(address: Address) -> Result<(Connections, Keyspace), OpenError> {
    if let Some(warning) = address.unencrypted() {
        tracing::warn!(storage = %address, "{warning}");
    }
    let connections = Connections::new(address)?;
    let keyspace = check(&connections).await?;
    Ok((connections, keyspace))
}

/// Creates the key by which the storage is known, if it is missing. Many may do so at once.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let connections = Connections::new(Address::parse(url)?)?;
    let created = create(&connections).await;
    connections.close().await;
    created
}

pub(super) async fn check(connections: &Connections) -> Result<Keyspace, OpenError> {
    let keyspace = Keyspace::new(&connections.address().prefix);
    let stands = look(connections, keyspace.look()).await?;
    let prefix = connections.address().prefix.clone();
    match stands {
        Some(value) => accept(&prefix, value).map(|identity| keyspace.known_by(identity)),
        None => Err(OpenError::missing(format!(
            "there is no storage below {prefix}/ in this etcd: `vvm init-storage --storage URL` creates it"
        ))),
    }
}

pub(super) async fn create(connections: &Connections) -> Result<(), OpenError> {
    let prefix = connections.address().prefix.clone();
    let mut random = [0; 16];
    let source = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    source
        .fill(&mut random)
        .map_err(|_| OpenError::refused("the client can't be set up: no random numbers"))?;
    let identity = format!("{FORMAT} {:032x}", u128::from_be_bytes(random));
    // Its answer may be lost: what stands afterwards decides.
    let created = look(connections, Keyspace::new(&prefix).creation(identity.into())).await;
    let stands = look(connections, Keyspace::new(&prefix).look()).await;
    match (created, stands) {
        (_, Ok(Some(value))) => {
            let keyspace = Keyspace::new(&prefix).known_by(accept(&prefix, value)?);
            try_to_write(connections, &keyspace).await
        }
        (Ok(_), Ok(None)) => Err(other_program(&prefix)),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// Tries a write that is refused, since no record has this key: a login without the right to write is told so here.
async fn try_to_write(connections: &Connections, keyspace: &Keyspace) -> Result<(), OpenError> {
    let key = ElectionKey { cluster: "vvm init-storage".into(), slot: SlotNumber::FIRST };
    let epoch =
        Epoch::following(None, Duration::ZERO).map_err(|cause| OpenError::refused(cause.to_string()))?;
    let release = Step::release(Incarnation::from_bytes([0; 16]), epoch);
    look(connections, keyspace.step(&key.partition(), &release)).await.map(drop)
}

fn accept(prefix: &str, value: Bytes) -> Result<Bytes, OpenError> {
    let text = String::from_utf8_lossy(&value);
    match text.strip_prefix(FORMAT) {
        Some(random) if random.starts_with(' ') => Ok(value),
        _ if text.starts_with(PROGRAM) => Err(OpenError::refused(format!(
            "the storage below {prefix}/ was made by a later version of vvm ({text}): use that version"
        ))),
        _ => Err(other_program(prefix)),
    }
}

fn other_program(prefix: &str) -> OpenError {
    OpenError::refused(format!("keys below {prefix}/ belong to another program: use another prefix"))
}

/// Asks another member if one can't answer: a learner, or one that is cut off. No request here harms if it is sent twice.
async fn look(connections: &Connections, request: TxnRequest) -> Result<Option<Bytes>, OpenError> {
    let mut answer = connections.transaction(&request).await;
    for _another in 1..connections.address().hosts.len() {
        if let Err(DriverError::NotBegun(_) | DriverError::Unanswered(_)) = answer {
            answer = connections.transaction(&request).await;
        }
    }
    let answer = answer.map_err(DriverError::into_open_error)?;
    let range = answer.responses.into_iter().find_map(|response| response.range);
    Ok(range.and_then(|range| range.kvs.into_iter().next()).map(|pair| pair.value))
}

/// The quota of a server that is not configured otherwise.
const QUOTA: i64 = 2 << 30;

pub(super) async fn describe(connections: &Connections) -> Result<Description, DriverError> {
    let status: StatusResponse = connections.call(STATUS, &StatusRequest {}).await?;
    let revision = status.header.map_or(0, |header| header.revision);
    let quota = if status.quota > 0 { status.quota } else { QUOTA };
    let mut description = Description::new(format!("etcd {}", status.version))
        .with("revision", revision)
        .with("database", mebibytes(status.size))
        .with("quota", mebibytes(quota) + if status.quota > 0 { "" } else { " unless configured" });
    for error in status.errors {
        description = description.concerned(format!("etcd reports: {error}"));
    }
    if status.size > quota / 2 {
        description = description.concerned(
            "the database takes more than half of its quota, and at the quota etcd refuses all writes: start \
             etcd with --auto-compaction-retention=1h, and defragment it",
        );
    }
    Ok(connections.address().unencrypted().into_iter().fold(description, Description::concerned))
}

fn mebibytes(bytes: i64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_format_is_accepted() {
        let accept = |value: &'static str| accept("vvm", value.into());
        assert!(accept("vvm elections, format 1 0123").is_ok());
        for newer in ["vvm elections, format 2 0123", "vvm elections, format 10 0123"] {
            let error = accept(newer).unwrap_err().to_string();
            assert!(error.contains("later version") && error.contains(newer), "{error}");
        }
        for other in ["", "yes", "vvm"] {
            assert!(accept(other).unwrap_err().to_string().contains("another program"), "{other}");
        }
    }
}
