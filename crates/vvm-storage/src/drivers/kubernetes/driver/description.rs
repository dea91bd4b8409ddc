//! What a server reports about itself, and which rights are missing.

use super::super::{
    errors::DriverError,
    open::{Connections, missing_rights, version},
};
use crate::Description;

pub(super) async fn describe(connections: &Connections) -> Result<Description, DriverError> {
    let description = Description::of(format!("Kubernetes {}", version(connections).await?))
        .with("server", connections.server())
        .with("namespace", connections.namespace())
        .with("credentials", connections.credentials());
    let missing = missing_rights(connections).await?;
    if missing.is_empty() {
        return Ok(description);
    }
    Ok(description.concerned(format!(
        "no Role allows us to {} leases of coordination.k8s.io in namespace {}: apply \
         packaging/kubernetes/base/rbac.yaml",
        missing.join(", "),
        connections.namespace()
    )))
}
