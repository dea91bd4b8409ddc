//! Opens a bucket: configures the client library, then tries whether the server obeys conditions.

mod address;
mod connect;
mod error;
mod probe;
mod requests;
mod transport;

pub(super) use address::Address;
pub use error::OpenError;
pub(super) use probe::{look, mark, probe};
pub(super) use requests::Requests;

use std::sync::Arc;
use vvm_clock::Clock;

impl Address {
    /// Returns the address that `url` names.
    fn parse(url: &str) -> Result<Self, OpenError> {
        address::parse(url).map_err(|why| OpenError::Url { url: url.into(), why })
    }
}

/// Reads the credentials for the bucket that `url` names. Connects at the first request.
pub(super) fn connect(url: &str, clock: Arc<dyn Clock>) -> Result<(Address, Requests), OpenError> {
    let address = Address::parse(url)?;
    let requests = connect::connect(&address, clock)?;
    Ok((address, requests))
}
