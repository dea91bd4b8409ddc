//! [`BareLeases`]: what one would write by hand, for measurements beside the driver.

use super::{cluster::Address, connections::Connections, errors::DriverError, open};
use crate::open_error::OpenError;
use hyper::Method;
use ielections::WriteError;
use serde_json::Value;

/// The Leases of a namespace, as JSON.
#[derive(Debug)]
pub struct BareLeases(Connections);

impl BareLeases {
    /// Opens the namespace that `url` names.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Ok(Self(open::open(&Address::parse(url)?).await?))
    }

    /// Creates a Lease. Returns it as it was written; `None` if it was refused.
    ///
    /// # Errors
    /// As the driver's writes.
    ///
    /// # Cancel safety
    /// Dropped, the request may be carried out, now or later.
    pub async fn create(&self, lease: &Value) -> Result<Option<Value>, WriteError> {
        self.send(Method::POST, &self.0.leases(), lease).await
    }

    /// Replaces the version that `lease` names, as [`create`](Self::create) does.
    ///
    /// # Errors
    /// As the driver's writes.
    ///
    /// # Cancel safety
    /// Dropped, the request may be carried out, now or later.
    pub async fn replace(&self, name: &str, lease: &Value) -> Result<Option<Value>, WriteError> {
        self.send(Method::PUT, &format!("{}/{name}", self.0.leases()), lease).await
    }

    async fn send(&self, method: Method, path: &str, lease: &Value) -> Result<Option<Value>, WriteError> {
        let body = lease.to_string().into();
        let answer = self.0.ask(method, path, Some(body)).await.map_err(DriverError::of_write)?;
        let written = matches!(answer.status, 200 | 201);
        Ok(written.then(|| serde_json::from_slice(&answer.body).ok()).flatten())
    }
}
