//! Requests for Leases, reviews of rights, and [`Watch`], which has a connection of its own.

use super::{
    DriverError, Response, Status,
    connection::{Connections, JSON, Session},
    rows::{self, Lease},
};
use bytes::Bytes;
use hyper::{
    Method,
    body::{Body as _, Incoming},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::pin::Pin;

/// In the place of objects, their names and what else `kubectl get` shows.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A row has at most a KiB.
const PAGE: usize = 500;

fn json(lease: &Lease) -> Result<Bytes, DriverError> {
    let json = serde_json::to_vec(lease).map_err(|cause| DriverError::Refused(cause.to_string()))?;
    Ok(json.into())
}

/// (I7) A write whose answer can't be read is unknown.
fn lease(answer: &Response) -> Result<Lease, DriverError> {
    serde_json::from_slice(&answer.body)
        .map_err(|cause| DriverError::Unanswered(format!("its answer is no Lease: {cause}")))
}

/// More than any Lease has.
const LONGEST_LINE: usize = 4 << 20;

pub(in crate::drivers) struct Watch {
    session: Session,
    body: Incoming,
    /// What has arrived of the next line.
    part: Vec<u8>,
}

#[derive(Deserialize, Debug)]
pub(super) struct WatchEvent {
    /// `ADDED`, also of what was there at the beginning; `MODIFIED`, `DELETED`, `ERROR`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) object: Lease,
}

impl Connections {
    pub(super) async fn get(&self, name: &str, may_be_stale: bool) -> Result<Option<Lease>, DriverError> {
        let options = if may_be_stale { "?resourceVersion=0" } else { "" };
        let answer = self.ask(JSON, Method::GET, &format!("{}/{name}{options}", self.leases()), None).await?;
        match answer.status {
            200 => lease(&answer).map(Some),
            404 if Status::from_response(&answer).is_absent() => Ok(None),
            _ => Err(DriverError::from_response(&answer)),
        }
    }

    /// `None` if there is one already. Cancel safety: as [`ask`](Self::ask).
    pub(super) async fn create(&self, lease: &Lease) -> Result<Option<Lease>, DriverError> {
        let answer = self.ask(JSON, Method::POST, &self.leases(), Some(json(lease)?)).await?;
        match answer.status {
            201 => self::lease(&answer).map(Some),
            409 if Status::from_response(&answer).reason == "AlreadyExists" => Ok(None),
            _ => Err(DriverError::from_response(&answer)),
        }
    }

    /// Replaces exactly the version in `lease`; `None` if another stands. Cancel safety: as [`ask`](Self::ask).
    pub(super) async fn replace(&self, lease: &Lease) -> Result<Option<Lease>, DriverError> {
        let path = format!("{}/{}", self.leases(), lease.name());
        let answer = self.ask(JSON, Method::PUT, &path, Some(json(lease)?)).await?;
        let status = Status::from_response(&answer);
        match answer.status {
            200 => self::lease(&answer).map(Some),
            409 if status.reason == "Conflict" => Ok(None),
            404 if status.is_absent() => Ok(None),
            _ => Err(DriverError::from_response(&answer)),
        }
    }

    /// One page of the names of all Leases that have our label, after the one that `token` continues, and the token of
    /// the next page. A table has no documents: a list of Leases would have all of them.
    pub(super) async fn names(&self, token: &str) -> Result<(Vec<String>, String), DriverError> {
        let token = if token.is_empty() { String::new() } else { format!("&continue={token}") };
        let path =
            format!("{}?labelSelector={}&includeObject=None&limit={PAGE}{token}", self.leases(), rows::NAME);
        let answer = self.ask(TABLE, Method::GET, &path, None).await?;
        let table = read(&answer)?;
        let rows = table["rows"].as_array().filter(|_| table["kind"] == "Table");
        let rows = rows.ok_or_else(|| DriverError::Unanswered("its answer is no table".into()))?;
        let names = rows.iter().filter_map(|row| Some(row["cells"][0].as_str()?.to_owned()));
        Ok((names.collect(), table["metadata"]["continue"].as_str().unwrap_or_default().to_owned()))
    }

    pub(super) fn leases(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.cluster.namespace)
    }

    /// Watches the Leases with a label. Dropped, it leaves nothing open.
    pub(super) async fn watch(&self, label: &str) -> Result<Watch, DriverError> {
        let path = format!("{}?watch=1&labelSelector={}%3D{label}", self.leases(), rows::NAME);
        let credential = self.credential().await?;
        let request = self.request(JSON, Method::GET, &path, None, &credential)?;
        let mut session = self.session(credential.own.clone()).await?;
        let beginning = async {
            let answer = session.begin(request).await?;
            let status = answer.status().as_u16();
            let mut watch = Watch { session, body: answer.into_body(), part: Vec::new() };
            match status {
                200 => return Ok(watch),
                401 => self.was_refused(&credential),
                _ => {}
            }
            // The words of a refusal are one line.
            let body = watch.line().await.unwrap_or_default().into();
            Err(DriverError::from_response(&Response { status, body }))
        };
        let begun = self.limiter.in_time(beginning).await;
        begun.unwrap_or_else(|silence| Err(DriverError::Unanswered(silence)))
    }
}

impl Watch {
    /// Waits for the next change. `None` if the stream has ended, or can't be read.
    /// May be dropped and called again at will.
    pub(super) async fn next(&mut self) -> Option<WatchEvent> {
        serde_json::from_slice(&self.line().await?).ok()
    }

    async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.part.iter().position(|byte| *byte == b'\n') {
                let rest = self.part.split_off(end + 1);
                return Some(std::mem::replace(&mut self.part, rest));
            }
            let Self { session, body, part } = self;
            let frame = session.driving(|context| Pin::new(&mut *body).poll_frame(context)).await;
            match frame {
                Some(Ok(frame)) if part.len() < LONGEST_LINE => {
                    part.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
                }
                _ => return None,
            }
        }
    }
}

const VERBS: [&str; 4] = ["get", "create", "update", "watch"];

const TRIAL_LEASE: &str = "vvm.init-storage";

pub(super) async fn try_creation(connections: &Connections) -> Result<(), DriverError> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": TRIAL_LEASE, "namespace": connections.cluster.namespace },
    });
    let path = format!("{}?dryRun=All", connections.leases());
    let answer = connections.ask(JSON, Method::POST, &path, Some(body(&lease))).await?;
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
        let answer = connections.ask(JSON, Method::POST, path, Some(body(&review))).await?;
        if read(&answer)?["status"]["allowed"] != true {
            missing.push(verb);
        }
    }
    Ok(missing)
}

pub(super) async fn version(connections: &Connections) -> Result<String, DriverError> {
    let answer = connections.ask(JSON, Method::GET, "/version", None).await?;
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
