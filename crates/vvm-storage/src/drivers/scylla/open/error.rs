//! Why a keyspace can't be opened, each with the way out.

use super::{
    super::errors::{Outcome, of_preparing, outcome},
    PASSWORD,
};
use crate::StorageUrl;
use ::scylla::errors::{DbError, ExecutionError, NewSessionError, PrepareError, RequestAttemptError};
use std::{io, path::PathBuf};

/// Why a keyspace could not be opened, or not be made ready. Nothing that was there has been changed.
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
    /// A user without a password.
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
    /// No contact point answers.
    #[error("no node answers at {contact_points}: start one, or mend the addresses ({cause})")]
    Unreachable {
        /// Who was asked.
        contact_points: String,
        /// What the last attempt says.
        cause: Box<NewSessionError>,
    },
    /// TLS does not come about.
    #[error("no TLS with the nodes at {contact_points}: {way_out} ({why})")]
    Tls {
        /// Who was asked.
        contact_points: String,
        /// What to do.
        way_out: &'static str,
        /// What was wrong.
        why: String,
    },
    /// A file of TLS can't be used.
    #[error("{}: {why}. It has to be one of PEM, a key without a passphrase", .path.display())]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Something listens there that speaks no CQL.
    #[error("what listens at {contact_points} does not answer in CQL: {way_out}")]
    NoCql {
        /// Who was asked.
        contact_points: String,
        /// What to do.
        way_out: &'static str,
    },
    /// The connection ended at our first words, before anything was answered.
    #[error(
        "{contact_points} hung up at our first words, as a node does that starts or goes down, and a proxy with no node \
         behind it. If that does not end, {way_out}"
    )]
    HungUp {
        /// Who was asked.
        contact_points: String,
        /// What to do if it is none of that.
        way_out: &'static str,
    },
    /// No version of the protocol in common.
    #[error(
        "the nodes at {contact_points} don't speak version 4 of CQL's protocol: Cassandra does from 3.0 on, unless \
         native_transport_allow_older_protocols forbids it ({why})"
    )]
    Protocol {
        /// Who was asked.
        contact_points: String,
        /// What they say.
        why: String,
    },
    /// The cluster wants to know who we are.
    #[error(
        "the cluster asks for a user: add user=NAME, and put the password into {PASSWORD} or a file (password_file=PATH)"
    )]
    UserWanted,
    /// Wrong user or password.
    #[error("the cluster does not know user `{user}` with this password: mend the user, or {PASSWORD}")]
    Credentials {
        /// Who we said we are.
        user: String,
    },
    /// The user may not do it.
    #[error(
        "the user may not do this ({0}): GRANT it. Who leads needs SELECT and MODIFY, who creates CREATE, who adds \
         columns ALTER"
    )]
    Unauthorized(String),
    /// The data centre is missing.
    #[error("there is no data centre `{wanted}`; there are: {there}")]
    NoDatacenter {
        /// What was asked for.
        wanted: String,
        /// Those that nodes say they are in.
        there: String,
    },
    /// The level is local to a data centre that has none of the records.
    #[error(
        "keyspace `{keyspace}` has no copies in data centre `{datacenter}`, so that nothing can be agreed on there; it \
         has {there}. Name one of these with datacenter=, or ALTER KEYSPACE"
    )]
    NoCopies {
        /// The keyspace.
        keyspace: String,
        /// The data centre asked for.
        datacenter: String,
        /// Where copies are.
        there: String,
    },
    /// The keyspace is missing.
    #[error(
        "there is no keyspace `{0}`: run `vvm init-storage` with this URL and replication=3, or mend the name"
    )]
    NoKeyspace(String),
    /// The table is missing.
    #[error("keyspace `{0}` has no table for elections: run `vvm init-storage` with this URL")]
    NoTable(String),
    /// The table lacks columns that it had to have since.
    #[error(
        "the table for elections in keyspace `{0}` is from before there were documents: run `vvm init-storage` with this \
         URL, by a user who may ALTER it. That adds columns, while others lead"
    )]
    BeforeDocuments(String),
    /// A keyspace is to be created, and nobody said how.
    #[error(
        "how many copies shall there be? Add replication=3, or replication=dc1:3,dc2:3 for each data centre"
    )]
    NoReplication,
    /// A table that something else made.
    #[error("table sysvvm in keyspace `{keyspace}` is not one of elections: {why}. Use another keyspace")]
    OtherTable {
        /// The keyspace.
        keyspace: String,
        /// What is different.
        why: String,
    },
    /// The table is written at another level.
    #[error(
        "this table is written at {stands}, and not at {wanted}: two levels would not see each other, and both could \
         lead. Use the same serial= and datacenter= as everybody, or another keyspace"
    )]
    OtherLevel {
        /// The level recorded with the table.
        stands: String,
        /// The level asked for.
        wanted: String,
    },
    /// No clock, to wait by while others create the same things.
    #[error("a clock's thread can't be started ({0}): raise this process's limits")]
    Clock(#[source] io::Error),
    /// The statements can't be prepared.
    #[error("the cluster refuses a statement: {0}")]
    Prepare(#[source] Box<PrepareError>),
    /// A request failed.
    #[error("{}", of_failure(.0))]
    Request(#[source] Box<ExecutionError>),
    /// An answer that can't be read.
    #[error("the cluster answered something that can't be read: {0}")]
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
    /// Whether it may pass by itself, so that trying again can help.
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
