//! Why a namespace can't be used, each with the way out.

use super::super::errors::DriverError;
use crate::StorageUrl;
use std::{io, path::PathBuf};

/// Why a namespace could not be used. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL makes no sense.
    #[error("`{url}`: {why}")]
    Url {
        /// What was asked for.
        url: StorageUrl,
        /// What is wrong, and how to write it.
        why: String,
    },
    /// There is neither a kubeconfig nor a service account.
    #[error(
        "no credentials for Kubernetes: in a Pod, mount its service account; elsewhere write \
         kubeconfig=PATH, set KUBECONFIG, or create {}", .kubeconfig.display()
    )]
    NoCredentials {
        /// Where a kubeconfig was looked for.
        kubeconfig: PathBuf,
    },
    /// A kubeconfig, certificate, key or token can't be used.
    #[error("{} can't be used: {why}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The server's certificate is not accepted, or it does not accept ours.
    #[error("no TLS with {server}: name its authority in the kubeconfig (certificate-authority) ({why})")]
    Tls {
        /// The server.
        server: String,
        /// What went wrong.
        why: String,
    },
    /// There is no connection.
    #[error("no API server answers at {server}: start it, or correct the address ({why})")]
    Unreachable {
        /// The server.
        server: String,
        /// What went wrong.
        why: String,
    },
    /// The first request failed, and may succeed later.
    #[error("the API server {server} did not answer the first request: {why}")]
    Request {
        /// The server.
        server: String,
        /// What went wrong.
        why: String,
    },
    /// Credentials or rights are missing.
    #[error("{why} [{server}]")]
    Refused {
        /// The server.
        server: String,
        /// What it says, and what to do.
        why: String,
    },
    /// The system refused a thread or a descriptor.
    #[error("the driver can't be started: {0}")]
    System(#[source] io::Error),
}

impl OpenError {
    /// Whether it may pass by itself.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Request { .. })
    }

    pub(super) fn of_request(server: &str, error: DriverError) -> Self {
        let server = server.to_owned();
        match error {
            DriverError::NotConnected { cause, is_passing } => match cause.downcast::<Self>() {
                Ok(error) => *error,
                Err(cause) if is_passing => Self::Unreachable { server, why: cause.to_string() },
                Err(cause) => Self::Refused { server, why: cause.to_string() },
            },
            DriverError::Throttled(_) | DriverError::Unanswered(_) | DriverError::Conflict(_) => {
                Self::Request { server, why: error.to_string() }
            }
            error => Self::Refused { server, why: error.to_string() },
        }
    }
}

impl From<OpenError> for DriverError {
    fn from(error: OpenError) -> Self {
        Self::NotConnected { is_passing: error.is_passing(), cause: error.into() }
    }
}
