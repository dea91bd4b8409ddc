//! [`OpenError`]: why a keyspace can't be opened.

use super::super::errors::{Outcome, of_preparing, outcome};
use crate::{
    StorageUrl,
    drivers::{password::PASSWORD, tls::Unusable},
};
use ::scylla::errors::{DbError, ExecutionError, NewSessionError, PrepareError, RequestAttemptError};
use std::{io, path::PathBuf};

/// Why a keyspace could not be opened or created. Existing data was not changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is malformed.
    #[error("`{url}`: {why}")]
    Url {
        /// The URL.
        url: StorageUrl,
        /// The mistake, and how to write it.
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
        /// The error of the system.
        cause: io::Error,
    },
    /// No contact point answers.
    #[error("no node answers at {contact_points}: start one, or correct the addresses ({cause})")]
    Unreachable {
        /// The nodes.
        contact_points: String,
        /// The error of the last attempt.
        cause: Box<NewSessionError>,
    },
    /// TLS could not be established.
    #[error("no TLS with the nodes at {contact_points}: {way_out} ({why})")]
    Tls {
        /// The nodes.
        contact_points: String,
        /// What to do.
        way_out: &'static str,
        /// The error.
        why: String,
    },
    /// A file for TLS can't be used.
    #[error("{}: {why}. Expected: PEM, and a key without a passphrase", .path.display())]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// The server does not speak CQL.
    #[error("the server at {contact_points} does not answer in CQL: {way_out}")]
    NoCql {
        /// The nodes.
        contact_points: String,
        /// What to do.
        way_out: &'static str,
    },
    /// The server closed the connection at the first request, without an answer.
    #[error(
        "{contact_points} closed the connection at the first request, as a node does while it starts or \
         stops, and a proxy without a node. If this persists, {way_out}"
    )]
    HungUp {
        /// The nodes.
        contact_points: String,
        /// What to do if it persists.
        way_out: &'static str,
    },
    /// There is no common version of the protocol.
    #[error(
        "the nodes at {contact_points} don't speak version 4 of CQL's protocol: Cassandra does from 3.0 on, \
         unless native_transport_allow_older_protocols forbids it ({why})"
    )]
    Protocol {
        /// The nodes.
        contact_points: String,
        /// The nodes' message.
        why: String,
    },
    /// The cluster requires a login.
    #[error(
        "the cluster requires a login: add user=NAME, and put the password into {PASSWORD} or a file \
         (password_file=PATH)"
    )]
    UserWanted,
    /// User or password are wrong.
    #[error("the cluster does not accept user `{user}` with this password: correct the user or {PASSWORD}")]
    Credentials {
        /// The user.
        user: String,
    },
    /// The user lacks a right.
    #[error(
        "the user lacks a right ({0}): GRANT it. Leading needs SELECT and MODIFY, creating CREATE, adding \
         columns ALTER"
    )]
    Unauthorized(String),
    /// The data centre is missing.
    #[error("there is no data centre `{wanted}`; there are: {there}")]
    NoDatacenter {
        /// The one in the URL.
        wanted: String,
        /// The existing ones.
        there: String,
    },
    /// The data centre of a local level has no copies.
    #[error(
        "keyspace `{keyspace}` has no copies in data centre `{datacenter}`, so it has no quorum there; it \
         has {there}. Name one of these with datacenter=, or ALTER KEYSPACE"
    )]
    NoCopies {
        /// The keyspace.
        keyspace: String,
        /// The data centre of the URL.
        datacenter: String,
        /// The data centres with copies.
        there: String,
    },
    /// The keyspace is missing.
    #[error(
        "there is no keyspace `{0}`: run `vvm init-storage` with this URL and replication=3, or correct the \
         name"
    )]
    NoKeyspace(String),
    /// The table is missing.
    #[error("keyspace `{0}` has no table for elections: run `vvm init-storage` with this URL")]
    NoTable(String),
    /// The table has format 1 without the columns of documents.
    #[error(
        "the table for elections in keyspace `{0}` lacks the columns of documents: run `vvm init-storage` \
         with this URL as a user with the right to ALTER it. Leaders can continue meanwhile"
    )]
    BeforeDocuments(String),
    /// A keyspace is missing, and the number of its copies is not given.
    #[error(
        "the number of copies is missing: add replication=3, or replication=dc1:3,dc2:3 for each data centre"
    )]
    NoReplication,
    /// Another program, or another version, created the table.
    #[error("table sysvvm in keyspace `{keyspace}` can't be used for elections: {why}. Use another keyspace")]
    OtherTable {
        /// The keyspace.
        keyspace: String,
        /// The difference.
        why: String,
    },
    /// The table is written at another level.
    #[error(
        "this table is written at {stands}, not at {wanted}: two levels do not see each other, and both \
         could lead. Use the same serial= and datacenter= as the other candidates, or another keyspace"
    )]
    OtherLevel {
        /// The level recorded with the table.
        stands: String,
        /// The level of the URL.
        wanted: String,
    },
    /// The clock could not be started.
    #[error("a clock's thread can't be started ({0}): raise this process's limits")]
    Clock(#[source] io::Error),
    /// The statements can't be prepared.
    #[error("the cluster refuses a statement: {0}")]
    Prepare(#[source] Box<PrepareError>),
    /// A request failed.
    #[error("{}", of_failure(.0))]
    Request(#[source] Box<ExecutionError>),
    /// An answer can't be read.
    #[error("an answer of the cluster can't be read: {0}")]
    Unreadable(String),
}

fn of_failure(cause: &ExecutionError) -> String {
    match cause {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(_, words))
            if outcome(cause) == Outcome::Refused =>
        {
            format!("the cluster refuses: {words}")
        }
        _ => format!("the cluster did not answer: {cause}. Try again"),
    }
}

impl OpenError {
    pub(super) fn of_file(file: Unusable) -> Self {
        Self::TlsFile { path: file.path, why: file.why }
    }

    /// Whether the obstacle may pass by itself, so that trying again can help.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::HungUp { .. } => true,
            Self::Request(cause) => outcome(cause) != Outcome::Refused,
            Self::Prepare(cause) => of_preparing(cause) != Outcome::Refused,
            _ => false,
        }
    }

    pub(super) fn of_request(cause: ExecutionError) -> Self {
        match cause {
            ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Unauthorized, why)) => {
                Self::Unauthorized(why)
            }
            cause => Self::Request(Box::new(cause)),
        }
    }
}
