//! Why a prefix can't be opened, each with the way out.

use super::super::errors::DriverError;
use crate::{
    StorageUrl,
    drivers::{password::PASSWORD, tls::Unusable},
};
use std::{io, path::PathBuf};

/// Why a prefix of etcd could not be opened, or not be made ready. Nothing that was there has been changed.
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
    /// There is a user without a password.
    #[error("there is no password: put it into the environment ({PASSWORD}) or a file (password_file=PATH)")]
    NoPassword,
    /// The file with the password can't be read.
    #[error("the password can't be read from {}: {cause}", .path.display())]
    PasswordFile {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// No member accepts a connection.
    #[error("no etcd answers at {host}: start it, or correct the address ({why})")]
    Unreachable {
        /// The last member that was tried.
        host: String,
        /// What went wrong.
        why: String,
    },
    /// Something else answers.
    #[error(
        "what answers at {host} does not speak etcd's protocol: name the port for clients (2379); if it \
         requires TLS, add tls_ca=PATH, and if it does without, remove the options of TLS ({why})"
    )]
    NotEtcd {
        /// The member.
        host: String,
        /// What went wrong.
        why: String,
    },
    /// TLS did not come about.
    #[error("no TLS with {host}: {way_out} ({why})")]
    Tls {
        /// The member.
        host: String,
        /// What to do.
        way_out: &'static str,
        /// What went wrong.
        why: String,
    },
    /// The cluster refuses user or password.
    #[error("etcd refuses the login of `{user}`: {why}. Correct the user, or {PASSWORD} or password_file")]
    Login {
        /// The user.
        user: String,
        /// The member's words.
        why: String,
    },
    /// Nothing was created yet.
    #[error("there is no storage below {prefix}/ in this etcd: `vvm init-storage URL` creates it")]
    NoStorage {
        /// The prefix.
        prefix: String,
    },
    /// The prefix is not ours.
    #[error("keys below {prefix}/ belong to another program: use another prefix")]
    OtherProgram {
        /// The prefix.
        prefix: String,
    },
    /// The storage is of a later version.
    #[error("the storage below {prefix}/ was made by a later version of vvm ({format}): use that version")]
    Newer {
        /// The prefix.
        prefix: String,
        /// What stands in its key.
        format: String,
    },
    /// A member refused a request, or did not answer it.
    #[error("{0}")]
    Request(String),
    /// A member refused a request for good.
    #[error("{0}")]
    Refused(String),
    /// A file of TLS can't be used.
    #[error("{}: {why}. It has to be one of PEM, a key without a passphrase", .path.display())]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The system refused a thread, which times requests, or random numbers.
    #[error("the client can't be set up: {0}")]
    System(io::Error),
}

impl OpenError {
    pub(super) fn of_file(file: Unusable) -> Self {
        Self::TlsFile { path: file.path, why: file.why }
    }

    pub(super) fn of_request(error: DriverError) -> Self {
        match error {
            DriverError::NotConnected { cause, .. } => match cause.downcast() {
                Ok(error) => *error,
                Err(cause) => Self::Request(cause.to_string()),
            },
            DriverError::Refused(_) | DriverError::Damaged(_) => Self::Refused(error.to_string()),
            other => Self::Request(other.to_string()),
        }
    }

    /// Whether it may pass by itself: a member that starts, an election of etcd's own.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Request(..))
    }
}

impl From<OpenError> for DriverError {
    fn from(error: OpenError) -> Self {
        Self::NotConnected { is_passing: error.is_passing(), cause: error.into() }
    }
}
