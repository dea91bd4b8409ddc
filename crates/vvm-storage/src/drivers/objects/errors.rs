//! [`Response`]: an answer of an object store, and what it means, by the driver's table.

use crate::{
    drivers::errors::{described, of_read},
    opening::OpenError,
};
use ielections::{ReadError, WriteError};
use object_store::HeaderMap;
use std::{error::Error, fmt::Display};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    /// `NoSuchKey`, for example. Empty for success, and for an answer without one.
    code: String,
    message: String,
    headers: HeaderMap,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum DriverError {
    #[error(
        "no connection to the object store, or no credentials for it: check the endpoint and the network; set \
         the platform's variables (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_SERVICE_ACCOUNT, \
         AZURE_STORAGE_ACCOUNT_KEY), or use a role of the machine ({0})"
    )]
    NotSent(String),
    #[error(
        "the object store denies the request: check the credentials, the machine's clock, and the rights to \
         get and put objects and to list the bucket, without which S3 denies a missing object ({0})"
    )]
    Denied(String),
    #[error(
        "there is no such bucket: it was deleted or renamed. Stop all candidates before you create it again \
         ({0})"
    )]
    NoBucket(String),
    #[error("the object store refuses the request: check the region and the endpoint ({0})")]
    Refused(String),
    #[error("the object store is busy with other requests ({0})")]
    Busy(String),
    #[error("the object store did not confirm the request: {0}")]
    Unanswered(String),
}

impl DriverError {
    pub(super) fn into_write_error(self) -> WriteError {
        match self {
            // A denial may pass: the clock is corrected, the credentials are fetched anew.
            Self::NotSent(_) | Self::Denied(_) | Self::Busy(_) => WriteError::NotApplied(self.into()),
            Self::Refused(_) => WriteError::Fatal(self.into()),
            // It existed when it was opened (I1).
            Self::NoBucket(_) => WriteError::Replaced(self.into()),
            Self::Unanswered(_) => WriteError::Unknown(self.into()),
        }
    }

    pub(super) fn into_open_error(self, place: impl Display) -> OpenError {
        match self {
            Self::NoBucket(said) => OpenError::refused(format!(
                "there is no bucket at {place}: create it, in one region and without versioning, or correct \
                 the URL ({said})"
            )),
            Self::Denied(_) | Self::Refused(_) => OpenError::refused(format!("{place}: {self}")),
            Self::NotSent(_) | Self::Busy(_) | Self::Unanswered(_) => {
                OpenError::passing(format!("{place}: {self}. Try again"))
            }
        }
    }

    pub(super) fn into_read_error(self) -> ReadError {
        of_read(self.into_write_error())
    }
}

impl Response {
    pub(super) fn new(status: u16, headers: HeaderMap, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let element = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>"))?;
            Some(rest.split_once("</")?.0.trim().to_owned())
        };
        let code = element("Code").unwrap_or_default();
        Self { status, code, message: element("Message").unwrap_or_default(), headers }
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether it says that there is no such object in a bucket that exists.
    pub(super) fn is_absent(&self) -> bool {
        self.status == 404 && matches!(&*self.code, "NoSuchKey" | "BlobNotFound")
    }

    pub(super) fn is_refusal(&self) -> bool {
        self.status == 412
            || self.is_absent()
            || (self.status == 409 && matches!(&*self.code, "BlobAlreadyExists" | "PreconditionFailed"))
    }

    /// Maps an answer that is neither a success nor one of the above. What is not certain is unknown (I7).
    pub(super) fn failure(&self) -> DriverError {
        let said = self.describe();
        match (self.status, &*self.code) {
            (404, "NoSuchBucket" | "ContainerNotFound") => DriverError::NoBucket(said),
            (409 | 429, _) => DriverError::Busy(said),
            (400, "RequestTimeout") | (408 | 500.., _) => DriverError::Unanswered(said),
            (401 | 403, _) | (400, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") => {
                DriverError::Denied(said)
            }
            // It may point to the outcome of a request that was applied.
            (303, _) => DriverError::Unanswered(said),
            // A success without a tag is not of an object store, but of a proxy.
            (200..300, _) => DriverError::Unanswered(format!("{said} without a tag")),
            _ => DriverError::Refused(said),
        }
    }

    /// S3Mock names itself in no header. But it sends the size of what was written, as AWS does only after appends, and
    /// no id of the request, which AWS, MinIO and versitygw send.
    pub(super) fn known_to_race(&self) -> Option<&'static str> {
        let is_s3mock =
            self.header("x-amz-object-size").is_some() && self.header("x-amz-request-id").is_none();
        is_s3mock.then_some("S3Mock")
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn describe(&self) -> String {
        let Self { status, code, message, .. } = self;
        match (&**code, &**message) {
            ("", _) => format!("HTTP status {status}"),
            (code, "") => format!("HTTP status {status}, {code}"),
            (code, message) => format!("HTTP status {status}, {code}: {message}"),
        }
    }
}

pub(super) fn unusable_credentials(error: &(dyn Error + 'static)) -> OpenError {
    OpenError::refused(format!(
        "the object store can't be used with these credentials: {}. Correct them in the environment",
        described(error)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, code: &str) -> Response {
        let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>");
        Response::new(status, HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn denial_ends_an_opening_and_is_tried_again_later() {
        for (status, code) in [(403, "RequestTimeTooSkewed"), (400, "ExpiredToken"), (401, "")] {
            let failure = || answer(status, code).failure();
            let error = failure().into_open_error("s3://b");
            assert!(!error.is_passing() && error.to_string().contains("machine's clock"), "{error:?}");
            let error = failure().into_read_error();
            assert!(matches!(&error, ReadError::Unavailable(cause) if cause.to_string().contains("clock")));
        }
    }
}
