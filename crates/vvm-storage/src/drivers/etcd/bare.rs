//! [`BareEtcd`]: what one would write by hand, for measurements beside the driver.

use super::{
    address::Address,
    connections::Connections,
    errors::DriverError,
    messages::{TxnRequest, absent, delete, equal, put, range},
};
use crate::open_error::OpenError;
use bytes::Bytes;
use ielections::WriteError;

/// One key for a slot, whose value is the whole record. It proves no epoch.
#[derive(Debug)]
pub struct BareEtcd(Connections);

impl BareEtcd {
    /// Takes everything but the prefix from the URL of a storage. Connects at the first request.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn new(url: &str) -> Result<Self, OpenError> {
        Ok(Self(Connections::new(Address::parse(url)?)?))
    }

    /// Replaces exactly `from` by `to`; `None` is the absence of a key. Returns whether it did.
    ///
    /// # Errors
    /// As the driver's writes.
    ///
    /// # Cancel safety
    /// Dropped, the transaction may be applied, now or later.
    pub async fn swap(&self, key: Bytes, from: Option<Bytes>, to: Option<Bytes>) -> Result<bool, WriteError> {
        let expected = from.map_or_else(|| absent(key.clone()), |from| equal(key.clone(), from));
        let change = to.map_or_else(|| delete(key.clone()), |to| put(key.clone(), to));
        let request =
            TxnRequest { compare: vec![expected], success: vec![change], failure: vec![range(key)] };
        let answer = self.0.transaction(&request).await.map_err(DriverError::of_write)?;
        Ok(answer.succeeded)
    }
}
