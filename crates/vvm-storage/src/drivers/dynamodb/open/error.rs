//! Why a table can't be opened. Each message says what to do.

use super::{super::errors::Failure, Address};
use crate::{StorageUrl, drivers::http_connection::chain};
use aws_credential_types::provider::error::CredentialsError;
use std::io;

/// Why a table could not be opened or created. Existing data is unchanged.
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
    /// There are no credentials to sign requests with.
    #[error(
        "no AWS credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (to any value for a local \
         endpoint), profile=NAME, or a role of the machine or container ({0})"
    )]
    NoCredentials(String),
    /// The provider of credentials returned none.
    #[error("the AWS credentials can't be fetched: check the service that issues them, or try again ({0})")]
    CredentialsNotFetched(String),
    /// The credentials are wrong or have expired.
    #[error(
        "AWS rejects these credentials: renew or correct them, check the machine's clock, and check that the \
         account uses region {region} ({said})"
    )]
    Credentials {
        /// The region.
        region: String,
        /// The answer of AWS.
        said: String,
    },
    /// The credentials are valid, and their policy does not allow the request.
    #[error("AWS denies the request: allow it in the policy of these credentials ({0})")]
    Denied(String),
    /// No server answers.
    #[error("no answer from {place}: check the region, the endpoint and the network ({cause})")]
    Unreachable {
        /// The address.
        place: String,
        /// The error.
        cause: String,
    },
    /// The table is missing.
    #[error(
        "there is no table `{table}` in {place}: if it is in another region, correct the URL; to create it, \
         run `vvm init-storage` with this URL"
    )]
    NoTable {
        /// The table.
        table: String,
        /// The address.
        place: String,
    },
    /// The table is being created.
    #[error("table `{0}` is being created: try again in a few seconds")]
    BeingCreated(String),
    /// The table is neither active nor being created.
    #[error("table `{table}` can't be used, its status is {status}: repair it, or use another table")]
    NotUsable {
        /// The table.
        table: String,
        /// Its status.
        status: String,
    },
    /// Another program created the table.
    #[error(
        "table `{table}` was not created by vvm: {why}. Use another table; `vvm init-storage` creates one"
    )]
    OtherTable {
        /// The table.
        table: String,
        /// The difference.
        why: String,
    },
    /// The table is replicated between regions.
    #[error(
        "table `{table}` is a global table, replicated to {regions}: two regions would have two leaders. Use \
         a table of one region"
    )]
    GlobalTable {
        /// The table.
        table: String,
        /// The other regions.
        regions: String,
    },
    /// DynamoDB would delete records by its own clock.
    #[error(
        "table `{table}` has time to live on attribute `{attribute}`, and would delete leader records while \
         they are held: switch it off (`aws dynamodb update-time-to-live`), or use another table"
    )]
    TimeToLive {
        /// The table.
        table: String,
        /// The attribute with time to live.
        attribute: String,
    },
    /// The server does not understand the request.
    #[error("{place} refuses the request, and may not be DynamoDB: {said}")]
    Refused {
        /// The address.
        place: String,
        /// The answer.
        said: String,
    },
    /// A request failed.
    #[error("{place} failed a request: {said}. Try again")]
    Request {
        /// The address.
        place: String,
        /// The answer.
        said: String,
    },
    /// The clock could not be started.
    #[error("the system refuses the thread that waits for a new table: {0}")]
    System(#[source] io::Error),
}

impl OpenError {
    pub(super) fn of_credentials(error: CredentialsError) -> Self {
        let words: Vec<_> = chain(&error).map(ToString::to_string).collect();
        let said = words.join(": ");
        match error {
            CredentialsError::CredentialsNotLoaded(_) | CredentialsError::InvalidConfiguration(_) => {
                Self::NoCredentials(said)
            }
            _ => Self::CredentialsNotFetched(said),
        }
    }

    pub(super) fn of_failure(address: &Address, failure: Failure) -> Self {
        let place = address.place();
        match failure {
            Failure::NotSent(cause) => Self::Unreachable { place, cause },
            Failure::NoCredentials(said) => Self::NoCredentials(said),
            Failure::Credentials(said) => Self::Credentials { region: address.region.clone(), said },
            Failure::Denied(said) => Self::Denied(said),
            Failure::NoTable(_) => Self::NoTable { table: address.table.clone(), place },
            Failure::Refused(said) => Self::Refused { place, said },
            Failure::Throttled(said)
            | Failure::Conflict(said)
            | Failure::Global(said)
            | Failure::Unanswered(said) => Self::Request { place, said },
        }
    }
}

impl Address {
    /// Returns the endpoint and the region for messages.
    pub(super) fn place(&self) -> String {
        match &self.endpoint {
            Some(endpoint) => format!("{endpoint}, region {}", self.region),
            None => format!("DynamoDB in region {}", self.region),
        }
    }
}
