//! Which error of the database or of its client library is which error of the contract: the table in the
//! driver's documentation, as code.

mod cancellation;
#[cfg(test)]
mod tests;

pub(super) use cancellation::Cancellation;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::{
    config::http::HttpResponse,
    error::{BuildError, ConnectorError, ProvideErrorMetadata, SdkError},
};
use ielections::{ReadError, WriteError};
use std::{error::Error, iter::successors};

/// A request failed, and what is known of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// It has not left this process: no connection, or no credentials for the time being.
    #[error("no connection to DynamoDB: {0}")]
    NotSent(String),
    /// There is nothing to sign it with.
    #[error(
        "there are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role \
         of the machine or container ({0})"
    )]
    NoCredentials(String),
    /// The credentials are wrong, or not valid any more.
    #[error("AWS does not take these credentials: renew or mend them, and check the machine's clock ({0})")]
    Credentials(String),
    /// The credentials are good, and not for this.
    #[error("AWS does not allow it: let the policy of these credentials grant it ({0})")]
    Denied(String),
    /// The table is not there, or being deleted.
    #[error("the table is gone: look who deleted it, and for its records, before another one is made ({0})")]
    NoTable(String),
    /// The table has been replicated to another region since it was opened.
    #[error(
        "the table became a global table: two regions would have two leaders; use one of one region ({0})"
    )]
    Global(String),
    /// The request makes no sense to the table.
    #[error("DynamoDB refuses the request: something else made the table, or the endpoint is none ({0})")]
    Refused(String),
    /// Too many requests.
    #[error("DynamoDB throttles requests: raise the table's or the account's limits ({0})")]
    Throttled(String),
    /// A transaction is writing to the item at this moment.
    #[error("a transaction was writing to the item ({0})")]
    Conflict(String),
    /// It may have been carried out.
    #[error("DynamoDB did not answer whether it was done: {0}")]
    Unanswered(String),
}

/// A request did not come to what was asked for.
#[derive(Debug)]
pub(super) enum DriverError {
    /// It failed.
    Failed(Failure),
    /// It was answered with an item that makes no sense.
    Damaged(Damaged),
}

/// An item that this driver never wrote.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the table has an item that no election wrote: {0}. Stop all candidates, and find out what writes to the \
     table"
)]
pub(super) struct Damaged(pub(super) String);

impl Damaged {
    /// A refusal that shows what was expected. (DynamoDB of before 2023, which shows nothing, would look like
    /// this.)
    pub(super) fn not_shown() -> Self {
        Self("it refuses a write, and shows nothing that would be in its way".into())
    }
}

impl From<Failure> for DriverError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Damaged> for DriverError {
    fn from(damaged: Damaged) -> Self {
        Self::Damaged(damaged)
    }
}

impl DriverError {
    pub(super) fn into_write_error(self) -> WriteError {
        match self {
            Self::Failed(failure) => failure.into_write_error(),
            // An item comes with a refusal alone.
            Self::Damaged(damaged) => WriteError::Fatal(damaged.into()),
        }
    }

    pub(super) fn into_read_error(self) -> ReadError {
        match self {
            Self::Failed(failure) => match failure.into_write_error() {
                WriteError::Fatal(cause) => ReadError::Fatal(cause),
                WriteError::Replaced(cause) => ReadError::Replaced(cause),
                WriteError::NotApplied(cause) | WriteError::Unknown(cause) => ReadError::Unavailable(cause),
            },
            Self::Damaged(damaged) => ReadError::Fatal(damaged.into()),
        }
    }
}

impl Failure {
    fn into_write_error(self) -> WriteError {
        match self {
            Self::NotSent(_) | Self::Throttled(_) | Self::Conflict(_) => WriteError::NotApplied(self.into()),
            Self::NoCredentials(_) | Self::Credentials(_) | Self::Denied(_) | Self::Refused(_) => {
                WriteError::Fatal(self.into())
            }
            // It was there when it was opened. Another may stand in its place, or another region write beside
            // us (I1).
            Self::NoTable(_) | Self::Global(_) => WriteError::Replaced(self.into()),
            Self::Unanswered(_) => WriteError::Unknown(self.into()),
        }
    }

    /// A request that could not even be put together.
    pub(super) fn of_building(error: &BuildError) -> Self {
        Self::Refused(error.to_string())
    }

    /// (I7) Whatever is not certain is unknown, kinds of error that a later version of the library adds
    /// included.
    ///
    /// A request is sent once: the error is that of the one attempt, never of one that followed another.
    pub(super) fn of<E>(error: SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let said = said(&error);
        match &error {
            SdkError::ConstructionFailure(_) => Self::Refused(said),
            SdkError::DispatchFailure(failure) => match failure.as_connector_error() {
                Some(error) => Self::of_connection(error, said),
                None => Self::Unanswered(said),
            },
            SdkError::ServiceError(answer) if answer.raw().status().is_server_error() => {
                Self::Unanswered(said)
            }
            SdkError::ServiceError(answer) => Self::of_code(answer.err().code().unwrap_or_default(), said),
            // No answer within the time, or one that can't be read.
            _ => Self::Unanswered(said),
        }
    }

    /// The credentials' own requests are none of ours, whatever became of them.
    fn of_connection(error: &ConnectorError, said: String) -> Self {
        if let Some(error) = chain(error).find_map(|error| error.downcast_ref::<CredentialsError>()) {
            return match error {
                CredentialsError::CredentialsNotLoaded(_) | CredentialsError::InvalidConfiguration(_) => {
                    Self::NoCredentials(said)
                }
                _ => Self::NotSent(said),
            };
        }
        // Looking up the host's name and the handshake of TLS are part of connecting. What the system calls a
        // refused connection is not enough: one that was established may end in it, too.
        let never_connected = chain(error)
            .filter_map(|error| error.downcast_ref::<hyper_util::client::legacy::Error>())
            .any(hyper_util::client::legacy::Error::is_connect);
        if never_connected { Self::NotSent(said) } else { Self::Unanswered(said) }
    }

    fn of_code(code: &str, said: String) -> Self {
        match code {
            "ProvisionedThroughputExceededException"
            | "RequestLimitExceeded"
            | "ThrottlingException"
            | "Throttling"
            // Of tables that are being created at the same time.
            | "LimitExceededException" => Self::Throttled(said),
            "TransactionConflictException" => Self::Conflict(said),
            "ReplicatedWriteConflictException" => Self::Global(said),
            "ResourceNotFoundException" => Self::NoTable(said),
            "AccessDeniedException" | "NotAuthorized" | "OptInRequired" => Self::Denied(said),
            "UnrecognizedClientException"
            | "InvalidClientTokenId"
            | "InvalidSignatureException"
            | "IncompleteSignature"
            | "IncompleteSignatureException"
            | "MissingAuthenticationToken"
            | "MissingAuthenticationTokenException"
            | "ExpiredToken"
            | "ExpiredTokenException"
            | "RequestExpired" => Self::Credentials(said),
            "ValidationException"
            | "ValidationError"
            | "SerializationException"
            | "UnknownOperationException"
            | "InvalidEndpointException"
            | "ItemCollectionSizeLimitExceededException" => Self::Refused(said),
            _ => Self::Unanswered(said),
        }
    }
}

/// Code and message of the server where there are any, what the library says otherwise: all of it, since the
/// outermost says the least.
pub(super) fn said<E>(error: &SdkError<E, HttpResponse>) -> String
where
    E: ProvideErrorMetadata + Error + 'static,
{
    if let SdkError::ServiceError(answer) = error {
        let status = answer.raw().status();
        return match (answer.err().code(), answer.err().message()) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            (Some(code), None) => code.to_owned(),
            (None, _) => format!("HTTP status {status}, without an error of DynamoDB"),
        };
    }
    let words: Vec<_> = chain(error).map(ToString::to_string).collect();
    words.join(": ")
}

/// An error and what caused it.
pub(super) fn chain<'error>(
    error: &'error (dyn Error + 'static),
) -> impl Iterator<Item = &'error (dyn Error + 'static)> {
    successors(Some(error), |&error| error.source())
}
