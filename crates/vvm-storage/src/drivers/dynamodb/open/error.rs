//! Why a table can't be opened, each with the way out.

use super::{
    super::errors::{Failure, chain},
    Address,
};
use crate::StorageUrl;
use aws_credential_types::provider::error::CredentialsError;
use std::io;

/// Why a table could not be opened, or not be made ready. Nothing that was there has been changed.
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
    /// There is nothing to sign requests with.
    #[error(
        "there are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (for a local endpoint \
         to anything), profile=NAME, or a role of the machine or container ({0})"
    )]
    NoCredentials(String),
    /// The provider of credentials did not return any.
    #[error("the AWS credentials can't be fetched: look at who gives them out, or try again ({0})")]
    CredentialsNotFetched(String),
    /// They are wrong, or not valid any more.
    #[error(
        "AWS does not take these credentials: renew or mend them, check the machine's clock, and that the \
         account uses region {region} ({said})"
    )]
    Credentials {
        /// Where.
        region: String,
        /// What AWS says.
        said: String,
    },
    /// They are good, and not for this.
    #[error("AWS does not allow it: let the policy of these credentials grant it ({0})")]
    Denied(String),
    /// No server answers there.
    #[error("no answer from {place}: mend the region, the endpoint, or the network ({cause})")]
    Unreachable {
        /// Who was asked.
        place: String,
        /// What came of it.
        cause: String,
    },
    /// The table is missing.
    #[error(
        "there is no table `{table}` in {place}: if it is in another region, mend the URL; if there is none \
         yet, run `vvm init-storage` with this URL"
    )]
    NoTable {
        /// Which one.
        table: String,
        /// Where.
        place: String,
    },
    /// The table is being created.
    #[error("table `{0}` is being created: try again in a few seconds")]
    BeingCreated(String),
    /// It is neither active nor being created.
    #[error("table `{table}` can't be used, it is {status}: mend that, or use another table")]
    NotUsable {
        /// Which one.
        table: String,
        /// What AWS says.
        status: String,
    },
    /// A table that something else made.
    #[error(
        "table `{table}` is not one of elections: {why}. Use another table; `vvm init-storage` makes one"
    )]
    OtherTable {
        /// Which one.
        table: String,
        /// What is different.
        why: String,
    },
    /// It is replicated between regions.
    #[error(
        "table `{table}` is a global table, replicated to {regions}: two regions would have two leaders. Use \
         a table of one region"
    )]
    GlobalTable {
        /// Which one.
        table: String,
        /// Where else it is.
        regions: String,
    },
    /// DynamoDB would delete records by its own clock.
    #[error(
        "table `{table}` has time to live on attribute `{attribute}`, and would delete leader records while \
         they are held: switch it off (`aws dynamodb update-time-to-live`), or use another table"
    )]
    TimeToLive {
        /// Which one.
        table: String,
        /// Its attribute.
        attribute: String,
    },
    /// DynamoDB takes no sense from a request.
    #[error("{place} refuses the request, and may not be DynamoDB: {said}")]
    Refused {
        /// Who was asked.
        place: String,
        /// What it says.
        said: String,
    },
    /// A request failed.
    #[error("{place} did not do it: {said}. Try again")]
    Request {
        /// Who was asked.
        place: String,
        /// What it says.
        said: String,
    },
    /// The clock could not be started.
    #[error("the system refuses what waiting for a table needs: {0}")]
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
    /// Where it leads, for people.
    pub(super) fn place(&self) -> String {
        match &self.endpoint {
            Some(endpoint) => format!("{endpoint}, region {}", self.region),
            None => format!("DynamoDB in region {}", self.region),
        }
    }
}
