//! The key by which a storage is known: its format, and random bytes that no other storage has.

use super::{
    super::rows::{FORMAT, Keyspace, PROGRAM, messages::TxnRequest},
    Connections, OpenError,
};
use bytes::Bytes;
use std::io;

/// Fails unless the prefix is ours, in the format that this driver writes.
pub(super) async fn check(connections: &Connections) -> Result<Keyspace, OpenError> {
    let keyspace = Keyspace::new(&connections.address().prefix);
    let stands = look(connections, keyspace.look()).await?;
    let prefix = connections.address().prefix.clone();
    match stands {
        Some(value) => accept(prefix, value).map(|identity| keyspace.known_by(identity)),
        None => Err(OpenError::NoStorage { prefix }),
    }
}

/// Creates the key, if no key with the prefix stands.
pub(super) async fn create(connections: &Connections) -> Result<(), OpenError> {
    let prefix = connections.address().prefix.clone();
    let mut random = [0; 16];
    let source = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    source.fill(&mut random).map_err(|_| OpenError::System(io::Error::other("no random numbers")))?;
    let identity = format!("{FORMAT} {:032x}", u128::from_be_bytes(random));
    // Its answer may be lost: what stands afterwards decides.
    let created = look(connections, Keyspace::new(&prefix).creation(identity.into())).await;
    let stands = look(connections, Keyspace::new(&prefix).look()).await;
    match (created, stands) {
        (_, Ok(Some(value))) => accept(prefix, value).map(drop),
        (Ok(_), Ok(None)) => Err(OpenError::OtherProgram { prefix }),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

fn accept(prefix: String, value: Bytes) -> Result<Bytes, OpenError> {
    let text = String::from_utf8_lossy(&value);
    match text.strip_prefix(FORMAT) {
        Some(random) if random.starts_with(' ') => Ok(value),
        _ if text.starts_with(PROGRAM) => Err(OpenError::Newer { prefix, format: text.into_owned() }),
        _ => Err(OpenError::OtherProgram { prefix }),
    }
}

/// The value of the key, as the first read of an answer shows it.
async fn look(connections: &Connections, request: TxnRequest) -> Result<Option<Bytes>, OpenError> {
    let answer = connections.transaction(&request).await.map_err(OpenError::of_request)?;
    let range = answer.responses.into_iter().find_map(|response| response.range);
    Ok(range.and_then(|range| range.kvs.into_iter().next()).map(|pair| pair.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_format_is_accepted() {
        let accept = |value: &'static str| accept("vvm".into(), value.into());
        assert!(accept("vvm elections, format 1 0123").is_ok());
        for newer in ["vvm elections, format 2 0123", "vvm elections, format 10 0123"] {
            let error = accept(newer).unwrap_err().to_string();
            assert!(error.contains("later version") && error.contains(newer), "{error}");
        }
        for other in ["", "yes", "vvm"] {
            assert!(matches!(accept(other), Err(OpenError::OtherProgram { .. })), "{other}");
        }
    }
}
