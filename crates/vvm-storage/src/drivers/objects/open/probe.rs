//! Tries at open whether the server obeys the conditions of writes.

use super::{super::errors::Failure, Address, OpenError, Requests};
use crate::{
    Provenance,
    cells::{CellWrite, Expected},
};
use bytes::Bytes;

/// The object that exists once a bucket was opened.
pub(in super::super) const CREATED: &str = "created";

/// An object that never exists.
const ABSENT: &str = "absent";

/// Reads an object that may be absent: shows whether the bucket exists, and the rights of a reader.
pub(in super::super) async fn look(address: &Address, requests: &Requests) -> Result<(), OpenError> {
    let got = requests.get(&requests.names.probe(ABSENT)).await;
    got.map(drop).map_err(|failure| OpenError::of(address, failure))
}

/// Tries writes that must be refused. Returns whether the prefix was used before.
///
/// # Errors
/// If one of them is accepted, among others.
pub(in super::super) async fn probe(address: &Address, requests: &Requests) -> Result<Provenance, OpenError> {
    look(address, requests).await?;
    let (absent, created) = (requests.names.probe(ABSENT), requests.names.probe(CREATED));
    let wrong = Expected::Tag(requests.wrong_tag());
    let put = async |name, expected| {
        let content = Bytes::from_static(b"vvm tries here whether this server obeys conditions");
        match requests.put(name, content, expected).await {
            Ok(outcome) => Ok(outcome == CellWrite::Refused),
            // It is no success, but as good as one: it changed nothing, and will not.
            Err(Failure::Busy(_)) => Ok(true),
            Err(failure) => Err(OpenError::of(address, failure)),
        }
    };
    let ignored = |condition| OpenError::Unconditional { place: address.to_string(), condition };
    if !put(&absent, &wrong).await? {
        return Err(ignored("If-Match with a wrong tag, where there is no object"));
    }
    let existed = put(&created, &Expected::Absent).await?;
    if !existed && !put(&created, &Expected::Absent).await? {
        return Err(ignored("If-None-Match, where there is an object"));
    }
    if !put(&created, &wrong).await? {
        return Err(ignored("If-Match with a wrong tag"));
    }
    Ok(if existed { Provenance::Existing } else { Provenance::Created })
}
