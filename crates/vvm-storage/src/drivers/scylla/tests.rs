use super::*;
use crate::drivers::errors::kinds;
use ::scylla::{
    errors::{ConnectionPoolError, OperationType, WriteType},
    statement::Consistency,
};
use std::time::Duration;

fn said(error: DbError) -> ExecutionError {
    ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, String::new()))
}

fn both(error: &ExecutionError) -> (&'static str, &'static str) {
    let failed = || DriverError::from(error.clone());
    (kinds::of_write(&failed().into_write_error()), kinds::of_read(&failed().into_read_error()))
}

#[test]
fn each_error_maps_as_documented() {
    let consistency = Consistency::Serial;
    let (received, required, numfailures) = (1, 2, 1);
    let not_begun = [
        ExecutionError::EmptyPlan,
        ExecutionError::ConnectionPoolError(ConnectionPoolError::Initializing),
        ExecutionError::LastAttemptError(RequestAttemptError::UnableToAllocStreamId),
        said(DbError::Unprepared { statement_id: Default::default() }),
        said(DbError::AuthenticationError),
        said(DbError::Unauthorized),
    ];
    let refused = [
        DbError::SyntaxError,
        DbError::Invalid,
        DbError::ConfigError,
        DbError::AlreadyExists { keyspace: String::new(), table: String::new() },
        DbError::ProtocolError,
    ]
    .map(said);
    let write_type = WriteType::Cas;
    let unknown = [
        DbError::WriteTimeout { consistency, received, required, write_type: write_type.clone() },
        DbError::WriteFailure { consistency, received, required, numfailures, write_type },
        DbError::ReadTimeout { consistency, received, required, data_present: true },
        DbError::ReadFailure { consistency, received, required, numfailures, data_present: true },
        DbError::Unavailable { consistency, required, alive: 1 },
        DbError::Overloaded,
        DbError::IsBootstrapping,
        DbError::TruncateError,
        DbError::ServerError,
        DbError::RateLimitReached { op_type: OperationType::Write, rejected_by_coordinator: true },
        DbError::FunctionFailure { keyspace: String::new(), function: String::new(), arg_types: Vec::new() },
        DbError::Other(0x1700),
    ]
    .map(said);
    let unanswered = ExecutionError::RequestTimeout(Duration::from_secs(2));
    for error in &not_begun {
        assert_eq!(both(error), ("NotApplied", "Unavailable"), "{error:?}");
    }
    for error in &refused {
        assert_eq!(both(error), ("Fatal", "Fatal"), "{error:?}");
    }
    for error in unknown.iter().chain([&unanswered]) {
        assert_eq!(both(error), ("Unknown", "Unavailable"), "{error:?}");
    }
}

#[test]
fn missing_quorum_is_named_with_its_numbers() {
    let missing = DbError::Unavailable { consistency: Consistency::Serial, required: 2, alive: 1 };
    let error = DriverError::from(said(missing)).to_string();
    assert!(error.contains("no quorum: 2 copies must answer, and the nodes of 1 are up"), "{error}");
}

#[test]
fn denial_or_refusal_ends_an_opening() {
    for error in [DbError::AuthenticationError, DbError::Unauthorized, DbError::ConfigError] {
        let first_attempt = RequestAttemptError::DbError(error.clone(), String::new());
        assert_eq!(
            of_preparing(&PrepareError::AllAttemptsFailed { first_attempt }).kind(),
            OpenErrorKind::Refused
        );
        assert_eq!(of_opening(&said(error)).kind(), OpenErrorKind::Refused);
    }
}
