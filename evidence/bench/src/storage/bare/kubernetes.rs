//! Kubernetes: one request for each verb, as client-go sends them for its own Lease.

use super::{BareError, BareStatements, HOLDER};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::HashMap;
use vvm_storage::kubernetes::bare::BareLeases;

pub(super) struct Kubernetes {
    leases: BareLeases,
    /// As they were last written.
    written: HashMap<u32, Value>,
}

/// Any moment: what it says is not looked at.
const MOMENT: &str = "2026-11-23T00:00:00.000000Z";

impl Kubernetes {
    pub(super) async fn open(url: &str) -> Result<Self, BareError> {
        Ok(Self { leases: BareLeases::open(url).await?, written: HashMap::new() })
    }

    async fn replace(&mut self, slot: u32, holder: &str) -> Result<(), BareError> {
        let mut lease = self.written.remove(&slot).ok_or("a Lease that was not claimed")?;
        lease["spec"] = spec(holder);
        let written = self.leases.replace(&name(slot), &lease).await?.ok_or(REFUSED)?;
        self.written.insert(slot, written);
        Ok(())
    }
}

const REFUSED: &str = "a write without a competitor was refused";

fn name(slot: u32) -> String {
    format!("bench-bare-{}-{slot}", std::process::id())
}

fn spec(holder: &str) -> Value {
    json!({
        "holderIdentity": holder, "leaseDurationSeconds": 20, "acquireTime": MOMENT, "renewTime": MOMENT,
        "leaseTransitions": 1,
    })
}

#[async_trait(?Send)]
impl BareStatements for Kubernetes {
    async fn claim(&mut self, slot: u32) -> Result<(), BareError> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name(slot) },
            "spec": spec(HOLDER),
        });
        let written = self.leases.create(&lease).await?.ok_or(REFUSED)?;
        self.written.insert(slot, written);
        Ok(())
    }

    async fn renew(&mut self, slot: u32) -> Result<(), BareError> {
        self.replace(slot, HOLDER).await
    }

    async fn release(&mut self, slot: u32) -> Result<(), BareError> {
        self.replace(slot, "").await
    }
}
