//! Why a keyspace can't be opened, each with the way out.

use super::{Address, PASSWORD};
use ::scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError,
    MetadataError, NewSessionError, PrepareError, RequestAttemptError,
};
use std::{io, path::PathBuf};

/// Why a keyspace could not be opened, or not be made ready. Nothing that was there has been changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL makes no sense.
    #[error("`{url}`: {why}")]
    Url {
        /// What was asked for.
        url: String,
        /// What is wrong, and how to write it.
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
    #[error("the user may not do this: grant it ({0})")]
    Unauthorized(String),
    /// The data centre is missing.
    #[error("there is no data centre `{wanted}`; there are: {there}")]
    NoDatacenter {
        /// What was asked for.
        wanted: String,
        /// Those that nodes say they are in.
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
    #[error("the cluster did not answer: {0}. Try again")]
    Request(#[source] Box<ExecutionError>),
    /// An answer that can't be read.
    #[error("the cluster answered something that can't be read: {0}")]
    Unreadable(String),
}

impl OpenError {
    pub(super) fn of_connecting(address: &Address, cause: NewSessionError) -> Self {
        if let NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
            ConnectionPoolError::Broken {
                last_connection_error: ConnectionError::ConnectionSetupRequestError(setup),
            },
        )) = &cause
        {
            match &setup.error {
                ConnectionSetupRequestErrorKind::MissingAuthentication => return Self::UserWanted,
                ConnectionSetupRequestErrorKind::DbError(
                    DbError::AuthenticationError | DbError::Unauthorized,
                    _,
                ) => return Self::Credentials { user: address.user.clone().unwrap_or_default() },
                _ => {}
            }
        }
        Self::Unreachable { contact_points: address.contact_points.join(", "), cause: Box::new(cause) }
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
