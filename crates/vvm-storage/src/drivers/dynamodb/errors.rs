use crate::drivers::errors::{self, chain, described, never_connected};
use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::{
    config::http::HttpResponse,
    error::{BuildError, ConnectorError, ProvideErrorMetadata, SdkError},
    types::CancellationReason,
};
use ielections::{ReadError, WriteError};
use std::error::Error;

#[derive(Debug, thiserror::Error)]
pub(super) enum DriverError {
    #[error("no connection to DynamoDB: {0}")]
    NotSent(String),
    #[error(
        "no AWS credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role of \
         the machine or container ({0})"
    )]
    NoCredentials(String),
    #[error("AWS rejects these credentials: renew or correct them, and check the machine's clock ({0})")]
    Credentials(String),
    #[error("AWS denies the request: allow it in the policy of these credentials ({0})")]
    Denied(String),
    #[error(
        "the table was deleted: before you create another one, find out why, and restore its records ({0})"
    )]
    NoTable(String),
    #[error(
        "the table became a global table: two regions would have two leaders; use a table of one region ({0})"
    )]
    Global(String),
    #[error(
        "DynamoDB refuses the request: another program created the table, or the endpoint is not DynamoDB \
         ({0})"
    )]
    Refused(String),
    #[error("DynamoDB throttles requests: raise the table's or the account's limits ({0})")]
    Throttled(String),
    #[error("a transaction was writing to the item ({0})")]
    Conflict(String),
    #[error("DynamoDB did not confirm the request: {0}")]
    Unanswered(String),
    #[error(transparent)]
    Damaged(#[from] DecodeError),
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum DecodeError {
    #[error(
        "another program wrote an item of the table: {0}. Stop all candidates, and find the program that \
         writes to the table"
    )]
    Foreign(String),
    #[error(
        "an item of the table has format {found}, and this version knows formats up to {known}: use the \
         newer version"
    )]
    Newer { found: u32, known: u32 },
}

impl DecodeError {
    /// Versions of DynamoDB before 2023 show no item, and look the same.
    pub(super) fn unexplained_refusal() -> Self {
        Self::Foreign("a write was refused although the item shown meets its condition".into())
    }
}

impl DriverError {
    pub(super) fn into_write_error(self) -> WriteError {
        match self {
            // Credentials are fetched anew, a clock and a policy are corrected. A provider that can't be reached
            // looks like one that is not there.
            Self::NotSent(_)
            | Self::NoCredentials(_)
            | Self::Credentials(_)
            | Self::Denied(_)
            | Self::Throttled(_)
            | Self::Conflict(_) => WriteError::NotApplied(self.into()),
            // A write gets an item only with its refusal, and a refused write was not applied.
            Self::Refused(_) | Self::Damaged(_) => WriteError::Fatal(self.into()),
            // The table existed when it was opened. Another table may replace it, or another region may write
            // beside this one (I1).
            Self::NoTable(_) | Self::Global(_) => WriteError::Replaced(self.into()),
            Self::Unanswered(_) => WriteError::Unknown(self.into()),
        }
    }

    pub(super) fn into_read_error(self) -> ReadError {
        errors::of_read(self.into_write_error())
    }

    pub(super) fn of_building(error: &BuildError) -> Self {
        Self::Refused(error.to_string())
    }

    /// Maps an error of the client library. What is not certain is unknown (I7), and so are kinds of error
    /// that a later version of the library adds.
    ///
    /// A request is sent once, so the error is never that of a second attempt.
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
            _ => Self::Unanswered(said),
        }
    }

    /// If the credentials could not be fetched, our request was not sent.
    fn of_connection(error: &ConnectorError, said: String) -> Self {
        if let Some(error) = chain(error).find_map(|error| error.downcast_ref::<CredentialsError>()) {
            return match error {
                CredentialsError::CredentialsNotLoaded(_) | CredentialsError::InvalidConfiguration(_) => {
                    Self::NoCredentials(said)
                }
                _ => Self::NotSent(said),
            };
        }
        if never_connected(error) { Self::NotSent(said) } else { Self::Unanswered(said) }
    }

    /// Each action has a reason; `None` means that the action itself was in order. Returns `None` if a condition
    /// failed.
    pub(super) fn of_cancellation(reasons: &[CancellationReason], said: String) -> Option<Self> {
        let contains = |codes: &[&str]| {
            reasons.iter().filter_map(CancellationReason::code).any(|code| codes.contains(&code))
        };
        if contains(&["ConditionalCheckFailed"]) {
            None
        } else if contains(&["AccessDenied"]) {
            Some(Self::Denied(said))
        } else if contains(&["ValidationError", "ItemCollectionSizeLimitExceeded", "DuplicateItem"]) {
            Some(Self::Refused(said))
        } else if contains(&["TransactionConflict"]) {
            Some(Self::Conflict(said))
        } else if contains(&["ProvisionedThroughputExceeded", "ThrottlingError", "RequestLimitExceeded"]) {
            Some(Self::Throttled(said))
        } else {
            Some(Self::Unanswered(said))
        }
    }

    fn of_code(code: &str, said: String) -> Self {
        match code {
            "ProvisionedThroughputExceededException"
            | "RequestLimitExceeded"
            | "ThrottlingException"
            | "Throttling"
            // Too many tables are being created at the same time.
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

/// Returns the server's code and message, or else the library's whole chain of errors: the outermost error says least.
pub(super) fn said<E>(error: &SdkError<E, HttpResponse>) -> String
where
    E: ProvideErrorMetadata + Error + 'static,
{
    if let SdkError::ServiceError(answer) = error {
        let status = answer.raw().status();
        return match (answer.err().code(), answer.err().message()) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            (Some(code), None) => code.to_owned(),
            (None, _) => format!("HTTP status {status} without a DynamoDB error code"),
        };
    }
    described(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::errors::kinds;
    use aws_sdk_dynamodb::{error::ErrorMetadata, operation::update_item::UpdateItemError};

    fn kind(codes: &[&str]) -> &'static str {
        let reason = |code: &&str| CancellationReason::builder().code(*code).build();
        let reasons: Vec<_> = codes.iter().map(reason).collect();
        match DriverError::of_cancellation(&reasons, String::new()) {
            None => "Refused",
            Some(error) => kinds::of_write(&error.into_write_error()),
        }
    }

    #[test]
    fn each_reason_maps_as_documented() {
        for (codes, expected) in [
            (&["None", "ConditionalCheckFailed"][..], "Refused"),
            // With both reasons, the item compared is committed, so the refusal counts.
            (&["TransactionConflict", "ConditionalCheckFailed"], "Refused"),
            (&["None", "TransactionConflict"], "NotApplied"),
            (&["ThrottlingError", "None"], "NotApplied"),
            (&["None", "ProvisionedThroughputExceeded"], "NotApplied"),
            (&["None", "ValidationError"], "Fatal"),
            (&["ItemCollectionSizeLimitExceeded"], "Fatal"),
            (&["AccessDenied"], "NotApplied"),
            (&["SomethingNew"], "Unknown"),
            (&["None"], "Unknown"),
            (&[], "Unknown"),
        ] {
            assert_eq!(kind(codes), expected, "{codes:?}");
        }
    }

    type UpdateError = SdkError<UpdateItemError, HttpResponse>;

    fn response(status: u16) -> HttpResponse {
        HttpResponse::new(status.try_into().unwrap(), "".into())
    }

    fn answered(status: u16, code: &str) -> UpdateError {
        let said = ErrorMetadata::builder().code(code).message("said so").build();
        SdkError::service_error(UpdateItemError::generic(said), response(status))
    }

    fn dispatch(cause: impl Into<Box<dyn Error + Send + Sync>>) -> UpdateError {
        SdkError::dispatch_failure(ConnectorError::other(cause.into(), None))
    }

    fn both(error: impl Fn() -> UpdateError) -> (&'static str, &'static str) {
        let failed = || DriverError::of(error());
        (kinds::of_write(&failed().into_write_error()), kinds::of_read(&failed().into_read_error()))
    }

    #[test]
    fn request_that_may_have_been_sent_is_unknown() {
        assert_eq!(both(|| SdkError::timeout_error("no answer in time")), ("Unknown", "Unavailable"));
        assert_eq!(both(|| SdkError::response_error("no JSON", response(200))), ("Unknown", "Unavailable"));
        assert_eq!(both(|| SdkError::construction_failure("no endpoint")), ("Fatal", "Fatal"));
        for broken in [
            ConnectorError::io("connection reset".into()),
            ConnectorError::timeout("no byte".into()),
            // An established connection can end with it, after an ICMP message of another host.
            ConnectorError::io(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))),
        ] {
            let failure = DriverError::of(UpdateError::dispatch_failure(broken));
            assert!(matches!(failure.into_write_error(), WriteError::Unknown(_)));
        }
    }

    #[test]
    fn request_without_credentials_is_not_applied() {
        let none = || dispatch(CredentialsError::not_loaded("none"));
        assert_eq!(both(none), ("NotApplied", "Unavailable"));
        let wrong = || dispatch(CredentialsError::invalid_configuration("a loop"));
        assert_eq!(both(wrong), ("NotApplied", "Unavailable"));
        // The provider fails, or hangs.
        assert_eq!(both(|| dispatch(CredentialsError::provider_error("503"))), ("NotApplied", "Unavailable"));
        let hangs = || dispatch(CredentialsError::provider_timed_out(std::time::Duration::from_secs(1)));
        assert_eq!(both(hangs), ("NotApplied", "Unavailable"));
    }

    #[test]
    fn message_has_the_answer_of_the_server_and_what_to_do() {
        let said = |error| DriverError::of::<UpdateItemError>(error).to_string();
        let error = said(answered(400, "AccessDeniedException"));
        assert!(error.contains("policy") && error.contains("AccessDeniedException: said so"), "{error}");
        assert!(said(answered(400, "InvalidSignatureException")).contains("clock"));
        assert!(said(dispatch(CredentialsError::not_loaded("none"))).contains("AWS_ACCESS_KEY_ID"));
        let error =
            said(SdkError::service_error(UpdateItemError::generic(ErrorMetadata::default()), response(502)));
        assert!(error.contains("502"), "{error}");
        assert!(said(SdkError::dispatch_failure(ConnectorError::io("reset".into()))).contains("reset"));
    }
}
