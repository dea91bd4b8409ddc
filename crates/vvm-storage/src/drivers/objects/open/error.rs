//! Why a bucket can't be opened. Each message says what to do.

use super::{super::errors::Failure, Address};
use crate::{StorageUrl, drivers::http_connection::chain};
use std::{error::Error, io, path::PathBuf};

/// Why a bucket could not be opened. Records are unchanged.
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
    /// The credentials in the environment are incomplete or unreadable.
    #[error("the object store can't be used with these credentials: {0}. Correct them in the environment")]
    Credentials(String),
    /// The file of authorities can't be used.
    #[error("tls_ca={}: {why}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// There is no connection, or there are no credentials.
    #[error(
        "{place} can't be reached, or there are no credentials for it: check the endpoint and the network; \
         set the platform's variables (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_SERVICE_ACCOUNT, \
         AZURE_STORAGE_ACCOUNT_KEY), or use a role of the machine ({cause})"
    )]
    Unreachable {
        /// The address.
        place: String,
        /// The error.
        cause: String,
    },
    /// The credentials or their rights are not enough.
    #[error(
        "{place} denies the request: check the credentials and the machine's clock, and allow to get and put \
         objects and to list the bucket: S3 answers \"denied\" for a missing object without that ({said})"
    )]
    Denied {
        /// The address.
        place: String,
        /// The answer.
        said: String,
    },
    /// The bucket is missing.
    #[error(
        "there is no bucket at {place}: create it, in one region and without versioning, or correct the URL \
         ({said})"
    )]
    NoBucket {
        /// The address.
        place: String,
        /// The answer.
        said: String,
    },
    /// The prefix was never initialised.
    #[error(
        "nothing was initialised at {place}: correct the URL, since candidates of different prefixes would \
         lead beside each other; or run `vvm init-storage` with it, which also tries the server"
    )]
    NotInitialised {
        /// The address.
        place: String,
    },
    /// Another program's objects are below the prefix, or a newer version's.
    #[error(
        "another program or a newer version of vvm uses {place}: use another prefix, or the newer version"
    )]
    Foreign {
        /// The address.
        place: String,
    },
    /// The server accepts a write whose condition does not hold.
    #[error(
        "the server at {place} ignores {condition}: two candidates would lead. Use a server, or a version of \
         it, that obeys conditions of writes"
    )]
    Unconditional {
        /// The address.
        place: String,
        /// The condition.
        condition: &'static str,
    },
    /// The server accepts several writes with one condition.
    #[error(
        "the server at {place} accepts conflicting writes: {why}. Two candidates would lead. Use a server, \
         or a version of it, that obeys conditions of writes"
    )]
    Racy {
        /// The address.
        place: String,
        /// The rounds.
        why: String,
    },
    /// The server does not understand the request.
    #[error("{place} refuses the request: check the region and the endpoint ({said})")]
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
    #[error("the system refuses the thread that waits for answers: {0}")]
    System(#[source] io::Error),
}

impl OpenError {
    pub(super) fn of_setup(error: &(dyn Error + 'static)) -> Self {
        let words: Vec<_> = chain(error).map(ToString::to_string).collect();
        Self::Credentials(words.join(": "))
    }

    pub(in super::super) fn of(address: &Address, failure: Failure) -> Self {
        let place = address.to_string();
        match failure {
            Failure::NotSent(cause) => Self::Unreachable { place, cause },
            Failure::Denied(said) => Self::Denied { place, said },
            Failure::NoBucket(said) => Self::NoBucket { place, said },
            Failure::Refused(said) => Self::Refused { place, said },
            Failure::Busy(said) | Failure::Unanswered(said) => Self::Request { place, said },
        }
    }

    /// Whether the obstacle may pass by itself.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Request { .. })
    }
}
