//! Tries whether the server obeys the conditions of writes, and whether the prefix is the intended one.

use super::{super::errors::Failure, Address, OpenError, Requests};
use crate::cells::{CellWrite, Expected};
use bytes::Bytes;
use object_store::path::Path;

/// The content of the object that `init` leaves.
const MARK: &[u8] = b"vvm elections, format 1\n";

/// Reads the mark of `init`. Without it the prefix is mistyped, or the server was never raced.
pub(in super::super) async fn look(address: &Address, requests: &Requests) -> Result<(), OpenError> {
    let place = || address.to_string();
    let got =
        requests.get(&requests.names.mark()).await.map_err(|failure| OpenError::of(address, failure))?;
    match got.cell {
        Some(cell) if cell.value == MARK => Ok(()),
        Some(_) => Err(OpenError::Foreign { place: place() }),
        None => Err(OpenError::NotInitialised { place: place() }),
    }
}

/// Leaves the mark, unless it is there.
pub(in super::super) async fn mark(address: &Address, requests: &Requests) -> Result<(), OpenError> {
    put(address, requests, &requests.names.mark(), &Expected::Absent).await.map(drop)
}

/// Tries writes that must be refused. The mark must exist.
///
/// # Errors
/// If one of them is accepted, among others.
pub(in super::super) async fn probe(address: &Address, requests: &Requests) -> Result<(), OpenError> {
    let (absent, mark) = (requests.names.probe("absent"), requests.names.mark());
    let wrong = Expected::Tag(requests.wrong_tag());
    for (name, expected, condition) in [
        (&absent, &wrong, "If-Match with a wrong tag, where there is no object"),
        (&mark, &wrong, "If-Match with a wrong tag"),
        (&mark, &Expected::Absent, "If-None-Match, where there is an object"),
    ] {
        if put(address, requests, name, expected).await? == CellWrite::Refused {
            continue;
        }
        return Err(OpenError::Unconditional { place: address.to_string(), condition });
    }
    Ok(())
}

async fn put(
    address: &Address,
    requests: &Requests,
    name: &Path,
    expected: &Expected,
) -> Result<CellWrite, OpenError> {
    match requests.put(name, Bytes::from_static(MARK), expected).await {
        // It changed nothing and will not: others try the same at this moment.
        Err(Failure::Busy(_)) => Ok(CellWrite::Refused),
        outcome => outcome.map_err(|failure| OpenError::of(address, failure)),
    }
}
