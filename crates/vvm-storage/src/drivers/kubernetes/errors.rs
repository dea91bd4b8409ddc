//! Which answer of the API server is which error of the contract, by the driver's table.

use super::rows::DecodeError;
use crate::{
    drivers::errors::{self, HandleClosed},
    opening::OpenError,
};
use bytes::Bytes;
use ielections::{ReadError, WriteError};
use serde::Deserialize;

#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum DriverError {
    /// No connection could be made: nothing was sent.
    #[error(transparent)]
    NotConnected(#[from] OpenError),
    /// The token or certificate is not accepted, at this moment.
    #[error(
        "the API server does not accept our credentials: renew the token or certificate of the kubeconfig \
         or service account; if it stands in the kubeconfig itself, restart this process, too ({0})"
    )]
    Credentials(String),
    #[error(
        "the API server denies the request: bind a Role that allows get, create, update, list and watch on \
         leases of coordination.k8s.io, as packaging/kubernetes/base/rbac.yaml does ({0})"
    )]
    Denied(String),
    #[error("the namespace does not exist: create it, or correct the URL ({0})")]
    NoNamespace(String),
    #[error("the API server refuses the request: {0}")]
    Refused(String),
    #[error("the API server throttles our requests: apply packaging/kubernetes/flow-schema.yaml ({0})")]
    Throttled(String),
    /// Something else was in the way of a write that was not applied.
    #[error("the API server did not apply it: {0}")]
    Conflict(String),
    #[error("the API server did not confirm the request: {0}")]
    Unanswered(String),
    #[error(
        "Lease {0} was deleted while it was held: find out who deletes Leases. The slot can be claimed again \
         after the longest TTL"
    )]
    Gone(String),
    #[error(transparent)]
    Damaged(#[from] DecodeError),
    #[error(transparent)]
    Closed(#[from] HandleClosed),
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Status {
    kind: String,
    pub(super) message: String,
    pub(super) reason: String,
    details: Details,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Details {
    kind: String,
}

impl Status {
    /// Reads the answer. An answer of another program has no reason.
    pub(super) fn from_response(answer: &Response) -> Self {
        let status: Self = serde_json::from_slice(&answer.body).unwrap_or_default();
        if status.kind == "Status" { status } else { Self::default() }
    }

    /// Whether the API server says that this Lease does not exist.
    pub(super) fn is_absent(&self) -> bool {
        self.reason == "NotFound" && self.details.kind == "leases"
    }
}

impl DriverError {
    /// (I7) What is not certain is unknown.
    pub(super) fn from_response(answer: &Response) -> Self {
        let status = Status::from_response(answer);
        let text = match &*status.message {
            "" => format!("HTTP status {} without the words of an API server", answer.status),
            message => format!("{message}: HTTP status {}", answer.status),
        };
        // Without a reason, a proxy may have answered after it passed the request on.
        let is_of_server = !status.reason.is_empty();
        match answer.status {
            401 => Self::Credentials(text),
            429 => Self::Throttled(text),
            403 if is_of_server => Self::Denied(text),
            404 if is_of_server && !status.is_absent() => Self::NoNamespace(text),
            409 if is_of_server => Self::Conflict(text),
            400 | 405 | 406 | 413 | 415 | 422 if is_of_server => Self::Refused(text),
            _ => Self::Unanswered(text),
        }
    }

    pub(super) fn of_opening(self, server: &str) -> OpenError {
        match self {
            Self::NotConnected(error) => error,
            Self::Throttled(_) | Self::Unanswered(_) | Self::Conflict(_) => OpenError::passing(format!(
                "the API server {server} did not answer the first request: {self}"
            )),
            error => OpenError::refused(format!("{error} [{server}]")),
        }
    }

    pub(super) fn of_write(self) -> WriteError {
        match self {
            // A server without its own storage may not know a valid token for a moment. One that has just started
            // denies what a Role allows until it has read all Roles.
            Self::NotConnected(_)
            | Self::Credentials(_)
            | Self::Denied(_)
            | Self::Throttled(_)
            | Self::Conflict(_) => WriteError::NotApplied(self.into()),
            Self::Unanswered(_) => WriteError::Unknown(self.into()),
            Self::Gone(_) => WriteError::Replaced(self.into()),
            Self::NoNamespace(_) | Self::Refused(_) | Self::Damaged(_) | Self::Closed(_) => {
                WriteError::Fatal(self.into())
            }
        }
    }

    pub(super) fn of_read(self) -> ReadError {
        errors::of_read(self.of_write())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Response {
        Response { status, body: body.to_owned().into() }
    }

    fn status(code: u16, reason: &str, kind: &str) -> Response {
        let body = format!(
            r#"{{"kind":"Status","message":"words","reason":"{reason}","details":{{"kind":"{kind}"}}}}"#
        );
        answer(code, &body)
    }

    #[test]
    fn denial_ends_an_opening_and_is_tried_again_later() {
        for (code, reason, part) in
            [(401, "Unauthorized", "renew the token"), (403, "Forbidden", "bind a Role")]
        {
            let denied = || DriverError::from_response(&status(code, reason, "leases"));
            let error = denied().of_opening("https://a");
            assert!(!error.is_passing() && error.to_string().contains(part), "{code}: {error:?}");
            let error = denied().of_read();
            assert!(matches!(&error, ReadError::Unavailable(cause) if cause.to_string().contains(part)));
        }
        // A file of the login that is being replaced.
        let error = DriverError::from(OpenError::refused("the token can't be used")).of_write();
        assert!(matches!(error, WriteError::NotApplied(_)), "{error:?}");
    }
}
