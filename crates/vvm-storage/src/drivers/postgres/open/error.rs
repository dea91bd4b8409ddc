//! Why a database can't be opened, each with the way out.

use super::super::errors::DriverError;
use crate::StorageUrl;
use std::{io, path::PathBuf};

/// Why a database could not be opened, or not be made ready. Nothing that was there has been changed.
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
    /// A file with passwords can't be read.
    #[error("the password can't be read from {}: {cause}", .path.display())]
    PasswordFile {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// No host accepts a connection.
    #[error("no PostgreSQL answers at {host}: start it, or correct the address ({why})")]
    Unreachable {
        /// The last host that was tried.
        host: String,
        /// What went wrong.
        why: String,
    },
    /// The server refuses user or password.
    #[error(
        "{host} refuses the connection: {why}. The password comes from password_file=PATH, VVM_STORAGE, \
         VVM_STORAGE_PASSWORD or ~/.pgpass"
    )]
    Login {
        /// The host.
        host: String,
        /// The server's words.
        why: String,
    },
    /// TLS did not come about.
    #[error("no TLS with {host}: {way_out} ({why})")]
    Tls {
        /// The host.
        host: String,
        /// What to do.
        way_out: &'static str,
        /// What went wrong.
        why: String,
    },
    /// The server has no such database.
    #[error(
        "there is no database {database}: create it (CREATE DATABASE), then its schema (`vvm init-storage`)"
    )]
    NoDatabase {
        /// The database.
        database: String,
    },
    /// The server does not accept writes.
    #[error("{host} is a standby or read-only, and no other host of the URL accepts writes")]
    ReadOnly {
        /// The last host that was tried.
        host: String,
    },
    /// The server would forget what it confirmed.
    #[error(
        "{host} has {setting} = {value}, so that a crash forgets leaders: set it to on, and reload or restart"
    )]
    Forgetful {
        /// The host.
        host: String,
        /// Which setting.
        setting: &'static str,
        /// What it is.
        value: String,
    },
    /// The server is too old.
    #[error("{host} is PostgreSQL {version}: 13 is the oldest version that works")]
    TooOld {
        /// The host.
        host: String,
        /// Its version.
        version: String,
    },
    /// Nothing was created yet.
    #[error("database {database} has no schema sysvvm: `vvm init-storage --storage URL` creates it")]
    NoSchema {
        /// The database.
        database: String,
    },
    /// The schema is not ours.
    #[error("schema sysvvm of this database belongs to another program: use another database")]
    OtherProgram,
    /// The schema is of a later version.
    #[error("schema sysvvm has the comment `{comment}`: a later version of vvm made it. Use that version")]
    Newer {
        /// Its comment.
        comment: String,
    },
    /// The server refused a request, or did not answer it.
    #[error("{0}")]
    Request(String),
    /// The server refused a request for good.
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
    /// The system refused a thread, which times requests, or TLS can't be set up.
    #[error("the client can't be set up: {0}")]
    System(io::Error),
}

impl OpenError {
    pub(super) fn of_request(error: DriverError) -> Self {
        match error {
            DriverError::NotConnected { cause, .. } => match cause.downcast() {
                Ok(error) => *error,
                Err(cause) => Self::Request(cause.to_string()),
            },
            DriverError::Refused(_) | DriverError::NoSchema(_) | DriverError::Damaged(_) => {
                Self::Refused(error.to_string())
            }
            other => Self::Request(other.to_string()),
        }
    }

    /// Whether it may pass by itself: a server that starts, a fail-over.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::ReadOnly { .. } | Self::Request(..))
    }
}

impl From<OpenError> for DriverError {
    fn from(error: OpenError) -> Self {
        Self::NotConnected { is_passing: error.is_passing(), cause: error.into() }
    }
}
