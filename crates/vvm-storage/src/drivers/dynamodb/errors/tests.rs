//! Tests of the error table in the driver's documentation.

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

/// An error answer of a server.
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
fn each_code_maps_as_documented() {
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
            // A broken server may have applied the request, with any code.
            for status in [500, 502, 503] {
                assert_eq!(kinds(|| answered(status, code)), ("Unknown", "Unavailable"), "{status} {code}");
            }
        }
    }
}

#[test]
fn errors_with_a_type_of_their_own_map_by_their_code() {
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
fn request_that_may_have_been_sent_is_unknown() {
    assert_eq!(kinds(|| SdkError::timeout_error("no answer in time")), ("Unknown", "Unavailable"));
    assert_eq!(kinds(|| SdkError::response_error("no JSON", response(200))), ("Unknown", "Unavailable"));
    assert_eq!(kinds(|| SdkError::construction_failure("no endpoint")), ("Fatal", "Fatal"));
    for broken in [
        ConnectorError::io("connection reset".into()),
        ConnectorError::timeout("no byte".into()),
        // An established connection can end with it, after an ICMP message of another host.
        ConnectorError::io(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))),
    ] {
        let failure = Failure::of(UpdateError::dispatch_failure(broken));
        assert!(matches!(DriverError::from(failure).into_write_error(), WriteError::Unknown(_)));
    }
}

#[test]
fn missing_credentials_are_fatal_and_a_failed_provider_is_not_applied() {
    let none = || dispatch(CredentialsError::not_loaded("none"));
    assert_eq!(kinds(none), ("Fatal", "Fatal"));
    assert_eq!(kinds(|| dispatch(CredentialsError::invalid_configuration("a loop"))), ("Fatal", "Fatal"));
    // The provider fails, or hangs.
    assert_eq!(kinds(|| dispatch(CredentialsError::provider_error("503"))), ("NotApplied", "Unavailable"));
    let hangs = || dispatch(CredentialsError::provider_timed_out(std::time::Duration::from_secs(1)));
    assert_eq!(kinds(hangs), ("NotApplied", "Unavailable"));
}

#[test]
fn message_has_the_answer_of_the_server_and_what_to_do() {
    let said = |error| Failure::of::<UpdateItemError>(error).to_string();
    let error = said(answered(400, "AccessDeniedException"));
    assert!(error.contains("policy") && error.contains("AccessDeniedException: said so"), "{error}");
    assert!(said(answered(400, "InvalidSignatureException")).contains("clock"));
    assert!(said(dispatch(CredentialsError::not_loaded("none"))).contains("AWS_ACCESS_KEY_ID"));
    let error =
        said(SdkError::service_error(UpdateItemError::generic(ErrorMetadata::default()), response(502)));
    assert!(error.contains("502"), "{error}");
    // The outermost error of a chain says least.
    assert!(said(SdkError::dispatch_failure(ConnectorError::io("reset".into()))).contains("reset"));
}
