//! The table in the driver's documentation, line by line.

use super::*;
use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::{
    error::ErrorMetadata,
    operation::update_item::UpdateItemError,
    types::error::{ProvisionedThroughputExceededException, TransactionConflictException},
};

type UpdateError = SdkError<UpdateItemError, HttpResponse>;

fn response(status: u16) -> HttpResponse {
    HttpResponse::new(status.try_into().unwrap(), "".into())
}

/// As a server says it.
fn answered(status: u16, code: &str) -> UpdateError {
    let said = ErrorMetadata::builder().code(code).message("said so").build();
    SdkError::service_error(UpdateItemError::generic(said), response(status))
}

fn dispatch(cause: impl Into<Box<dyn Error + Send + Sync>>) -> UpdateError {
    SdkError::dispatch_failure(ConnectorError::other(cause.into(), None))
}

fn kinds(error: impl Fn() -> UpdateError) -> (&'static str, &'static str) {
    let write = match DriverError::from(Failure::of(error())).into_write_error() {
        WriteError::NotApplied(_) => "NotApplied",
        WriteError::Unknown(_) => "Unknown",
        WriteError::Fatal(_) => "Fatal",
        WriteError::Replaced(_) => "Replaced",
    };
    let read = match DriverError::from(Failure::of(error())).into_read_error() {
        ReadError::Unavailable(_) => "Unavailable",
        ReadError::Fatal(_) => "Fatal",
        ReadError::Replaced(_) => "Replaced",
    };
    (write, read)
}

#[test]
fn each_code_is_what_the_table_says() {
    let table: [(&[&str], _, _); 4] = [
        (
            &[
                "ProvisionedThroughputExceededException",
                "RequestLimitExceeded",
                "ThrottlingException",
                "TransactionConflictException",
            ],
            "NotApplied",
            "Unavailable",
        ),
        (
            &[
                "AccessDeniedException",
                "UnrecognizedClientException",
                "InvalidSignatureException",
                "IncompleteSignatureException",
                "MissingAuthenticationTokenException",
                "ExpiredTokenException",
                "ValidationException",
                "SerializationException",
                "UnknownOperationException",
                "ItemCollectionSizeLimitExceededException",
            ],
            "Fatal",
            "Fatal",
        ),
        (&["ResourceNotFoundException", "ReplicatedWriteConflictException"], "Replaced", "Replaced"),
        (&["SomethingNew", ""], "Unknown", "Unavailable"),
    ];
    for (codes, write, read) in table {
        for code in codes {
            assert_eq!(kinds(|| answered(400, code)), (write, read), "{code}");
            // Whatever a broken server says, it may have done it.
            for status in [500, 502, 503] {
                assert_eq!(kinds(|| answered(status, code)), ("Unknown", "Unavailable"), "{status} {code}");
            }
        }
    }
}

#[test]
fn errors_that_the_library_knows_are_told_by_their_codes_too() {
    let said = |code| ErrorMetadata::builder().code(code).build();
    let conflict = TransactionConflictException::builder().meta(said("TransactionConflictException")).build();
    let throttled = ProvisionedThroughputExceededException::builder()
        .meta(said("ProvisionedThroughputExceededException"))
        .build();
    for error in [
        UpdateItemError::TransactionConflictException(conflict),
        UpdateItemError::ProvisionedThroughputExceededException(throttled),
    ] {
        let failure = Failure::of(SdkError::service_error(error, response(400)));
        assert!(matches!(DriverError::from(failure).into_write_error(), WriteError::NotApplied(_)));
    }
}

#[test]
fn only_what_never_left_is_not_applied() {
    assert_eq!(kinds(|| SdkError::timeout_error("no answer in time")), ("Unknown", "Unavailable"));
    assert_eq!(kinds(|| SdkError::response_error("no JSON", response(200))), ("Unknown", "Unavailable"));
    assert_eq!(kinds(|| SdkError::construction_failure("no endpoint")), ("Fatal", "Fatal"));
    for broken in [
        ConnectorError::io("connection reset".into()),
        ConnectorError::timeout("no byte".into()),
        // An established connection can end in it, when a packet of another host says so.
        ConnectorError::io(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))),
    ] {
        let failure = Failure::of(UpdateError::dispatch_failure(broken));
        assert!(matches!(DriverError::from(failure).into_write_error(), WriteError::Unknown(_)));
    }
}

#[test]
fn without_credentials_nothing_is_sent() {
    let none = || dispatch(CredentialsError::not_loaded("none"));
    assert_eq!(kinds(none), ("Fatal", "Fatal"));
    assert_eq!(kinds(|| dispatch(CredentialsError::invalid_configuration("a loop"))), ("Fatal", "Fatal"));
    // The provider hangs or fails.
    assert_eq!(kinds(|| dispatch(CredentialsError::provider_error("503"))), ("NotApplied", "Unavailable"));
    let hangs = || dispatch(CredentialsError::provider_timed_out(std::time::Duration::from_secs(1)));
    assert_eq!(kinds(hangs), ("NotApplied", "Unavailable"));
}

#[test]
fn an_error_says_what_the_server_said_and_what_to_do() {
    let said = |error| Failure::of::<UpdateItemError>(error).to_string();
    let error = said(answered(400, "AccessDeniedException"));
    assert!(error.contains("policy") && error.contains("AccessDeniedException: said so"), "{error}");
    assert!(said(answered(400, "InvalidSignatureException")).contains("clock"));
    assert!(said(dispatch(CredentialsError::not_loaded("none"))).contains("AWS_ACCESS_KEY_ID"));
    let error =
        said(SdkError::service_error(UpdateItemError::generic(ErrorMetadata::default()), response(502)));
    assert!(error.contains("502"), "{error}");
    // The outermost error of a chain says the least.
    assert!(said(SdkError::dispatch_failure(ConnectorError::io("reset".into()))).contains("reset"));
}
