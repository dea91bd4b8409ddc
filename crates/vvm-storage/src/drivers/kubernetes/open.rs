use super::{
    cluster::{self, Address},
    connections::Connections,
    errors::{DriverError, Response},
    names,
};
use crate::{key::Partition, opening::OpenError};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

/// Connects, and reads a Lease that does not exist: server, credentials and the right to read are there. A
/// user without the right to create Leases may look.
pub(super) async fn open(address: &Address) -> Result<Connections, OpenError> {
    let connections = Connections::new(cluster::find(address)?, address.request_timeout)?;
    // The first one is waited for: a login plug-in may take longer than a request.
    let _credential = connections.cluster.token.get(connections.clock()).await?;
    let nothing = names::name(&Partition::from_bytes(*b""));
    connections.get(&nothing, false).await.map_err(|error| error.of_opening(&connections.cluster.server))?;
    match creation(&connections).await {
        Err(error @ DriverError::NoNamespace(_)) => Err(error.of_opening(&connections.cluster.server)),
        _ => Ok(connections),
    }
}

/// Checks that the namespace and all rights are there. Kubernetes needs nothing else.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let connections = open(&Address::parse(url)?).await?;
    let checked = check_rights(&connections).await;
    connections.close().await;
    checked
}

const VERBS: [&str; 4] = ["get", "create", "update", "watch"];

const TRIED: &str = "vvm.init-storage";

/// Checks that Leases can be created in the namespace, by a dry run, and that no right is missing.
pub(super) async fn check_rights(connections: &Connections) -> Result<(), OpenError> {
    let failed = |error: DriverError| error.of_opening(&connections.cluster.server);
    let missing = missing_rights(connections).await.map_err(failed)?;
    if !missing.is_empty() {
        let why = format!("{} leases in namespace {}", missing.join(", "), connections.cluster.namespace);
        return Err(failed(DriverError::Denied(why)));
    }
    creation(connections).await.map_err(failed)
}

pub(super) async fn creation(connections: &Connections) -> Result<(), DriverError> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": TRIED, "namespace": connections.cluster.namespace },
    });
    let path = format!("{}?dryRun=All", connections.leases());
    let answer = connections.ask(Method::POST, &path, Some(body(&lease))).await?;
    if answer.status == 201 { Ok(()) } else { Err(DriverError::from_response(&answer)) }
}

pub(super) async fn missing_rights(connections: &Connections) -> Result<Vec<&'static str>, DriverError> {
    let mut missing = Vec::new();
    for verb in VERBS {
        let resource = json!({
            "namespace": connections.cluster.namespace,
            "verb": verb, "group": "coordination.k8s.io", "resource": "leases",
        });
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": resource },
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = connections.ask(Method::POST, path, Some(body(&review))).await?;
        if read(&answer)?["status"]["allowed"] != true {
            missing.push(verb);
        }
    }
    Ok(missing)
}

pub(super) async fn version(connections: &Connections) -> Result<String, DriverError> {
    let answer = connections.ask(Method::GET, "/version", None).await?;
    Ok(read(&answer)?["gitVersion"].as_str().unwrap_or("of an unknown version").to_owned())
}

fn body(value: &Value) -> Bytes {
    value.to_string().into()
}

fn read(answer: &Response) -> Result<Value, DriverError> {
    match answer.status {
        200 | 201 => serde_json::from_slice(&answer.body)
            .map_err(|cause| DriverError::Unanswered(format!("its answer can't be read: {cause}"))),
        _ => Err(DriverError::from_response(answer)),
    }
}
