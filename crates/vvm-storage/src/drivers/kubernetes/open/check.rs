//! What the server says about itself and about our rights.

use super::{Connections, OpenError};
use crate::drivers::kubernetes::errors::{Answer, DriverError};
use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use serde_json::json;

/// The verbs that elections use on Leases. `watch` is for hints alone.
const VERBS: [&str; 4] = ["get", "create", "update", "watch"];

/// A Lease that is never created.
const TRIED: &str = "vvm.init-storage";

#[derive(Deserialize)]
struct Review {
    status: ReviewStatus,
}

#[derive(Deserialize)]
struct ReviewStatus {
    allowed: bool,
}

/// Checks that Leases can be created in the namespace, by a dry run, and that no right is missing.
pub(super) async fn check_rights(connections: &Connections) -> Result<(), OpenError> {
    let failed = |error| OpenError::of_request(connections.server(), error);
    let missing = missing_rights(connections).await.map_err(failed)?;
    if !missing.is_empty() {
        let why = format!("{} leases in namespace {}", missing.join(", "), connections.namespace());
        return Err(failed(DriverError::Denied(why)));
    }
    creation(connections).await.map_err(failed)
}

/// Tries to create a Lease, by a dry run. Fails if the namespace or the right is missing.
pub(super) async fn creation(connections: &Connections) -> Result<(), DriverError> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": TRIED, "namespace": connections.namespace() },
    });
    let path = format!("{}?dryRun=All", connections.leases());
    let answer = connections.ask(Method::POST, &path, Some(body(&lease))).await?;
    if answer.status == 201 { Ok(()) } else { Err(DriverError::of(&answer)) }
}

/// Returns the verbs that no Role allows.
pub(in super::super) async fn missing_rights(
    connections: &Connections,
) -> Result<Vec<&'static str>, DriverError> {
    let mut missing = Vec::new();
    for verb in VERBS {
        let resource = json!({
            "namespace": connections.namespace(),
            "verb": verb, "group": "coordination.k8s.io", "resource": "leases",
        });
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": resource },
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = connections.ask(Method::POST, path, Some(body(&review))).await?;
        if !read::<Review>(&answer)?.status.allowed {
            missing.push(verb);
        }
    }
    Ok(missing)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

/// Returns the server's version.
pub(in super::super) async fn version(connections: &Connections) -> Result<String, DriverError> {
    let answer = connections.ask(Method::GET, "/version", None).await?;
    Ok(read::<Version>(&answer)?.git_version)
}

fn body(value: &serde_json::Value) -> Bytes {
    value.to_string().into()
}

fn read<'a, T: Deserialize<'a>>(answer: &'a Answer) -> Result<T, DriverError> {
    match answer.status {
        200 | 201 => serde_json::from_slice(&answer.body)
            .map_err(|cause| DriverError::Unanswered(format!("its answer can't be read: {cause}"))),
        _ => Err(DriverError::of(answer)),
    }
}
