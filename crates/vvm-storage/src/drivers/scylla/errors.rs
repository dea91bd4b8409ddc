use crate::{
    drivers::errors::of_read,
    opening::{OpenError, OpenErrorKind},
};
use ::scylla::errors::{BadQuery, DbError, ExecutionError, PrepareError, RequestAttemptError};
use ielections::{ReadError, WriteError};
use std::error::Error;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestOutcome {
    NotBegun,
    /// No server has begun it: it denies the login or the right, or could not read them from other nodes.
    Denied,
    /// No server has begun it, and none will until its cause is removed.
    Refused,
    Unknown,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum DriverError {
    #[error("{}", describe(.0))]
    Failed(#[source] Box<ExecutionError>),
    #[error(transparent)]
    Damaged(#[from] DecodeError),
    #[error(transparent)]
    Unreadable(Box<dyn Error + Send + Sync>),
}

fn describe(cause: &ExecutionError) -> String {
    match cause {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, words)) => match error {
            DbError::Unavailable { required, alive, .. } => format!(
                "no quorum: {required} copies must answer, and the nodes of {alive} are up. Start the others, or \
                 ALTER KEYSPACE to fewer copies"
            ),
            DbError::Unauthorized => format!("{words}: GRANT SELECT and MODIFY on the keyspace"),
            DbError::Invalid => format!(
                "{words}: keyspace or table were dropped or altered. `vvm init-storage` creates what is missing"
            ),
            _ => cause.to_string(),
        },
        ExecutionError::RequestTimeout(after) => {
            let after = vvm_clock::DisplayDuration(*after);
            format!("no answer within {after}: nodes hang, are overloaded, or can't reach each other")
        }
        ExecutionError::EmptyPlan | ExecutionError::ConnectionPoolError(_) => format!(
            "no node can be reached: start the nodes, check the network, or restart this process if its \
             certificate or password was renewed since its start ({cause})"
        ),
        _ => cause.to_string(),
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the table has a row that no election wrote: {0}. Stop all candidates, and find the program that writes \
     to it"
)]
pub(super) struct DecodeError(pub(super) String);

impl From<ExecutionError> for DriverError {
    fn from(error: ExecutionError) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl DriverError {
    pub(super) fn into_write_error(self) -> WriteError {
        let outcome = match &self {
            Self::Failed(error) => outcome(error),
            // Only a refusal has a row.
            Self::Damaged(_) => RequestOutcome::Refused,
            Self::Unreadable(_) => RequestOutcome::Unknown,
        };
        match outcome {
            RequestOutcome::NotBegun | RequestOutcome::Denied => WriteError::NotApplied(self.into()),
            RequestOutcome::Refused => WriteError::Fatal(self.into()),
            RequestOutcome::Unknown => WriteError::Unknown(self.into()),
        }
    }

    pub(super) fn into_read_error(self) -> ReadError {
        of_read(self.into_write_error())
    }
}

/// (I7) Every error that is not listed is `Unknown`. A request is sent once, so the error is that of the only attempt.
pub(super) fn outcome(error: &ExecutionError) -> RequestOutcome {
    match error {
        ExecutionError::EmptyPlan
        | ExecutionError::ConnectionPoolError(_)
        | ExecutionError::PrepareError(_) => RequestOutcome::NotBegun,
        ExecutionError::BadQuery(
            BadQuery::SerializationError(_)
            | BadQuery::PartitionKeyExtraction
            | BadQuery::ValuesTooLongForKey(..),
        ) => RequestOutcome::Refused,
        ExecutionError::LastAttemptError(error) => of_attempt(error),
        _ => RequestOutcome::Unknown,
    }
}

pub(super) fn of_preparing(error: &PrepareError) -> OpenError {
    let text = format!("the cluster refuses a statement: {error}");
    match error {
        PrepareError::AllAttemptsFailed { first_attempt }
            if matches!(of_attempt(first_attempt), RequestOutcome::Denied | RequestOutcome::Refused) =>
        {
            OpenError::refused(text)
        }
        _ => OpenError::passing(text),
    }
}

/// A node that says that a request is invalid lacks the keyspace, the table or a column, perhaps only in its memory, or
/// has a column already.
pub(super) fn of_opening(cause: &ExecutionError) -> OpenError {
    match cause {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Unauthorized, why)) => {
            OpenError::refused(format!("this user lacks a right: {why}"))
        }
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, words))
            if matches!(outcome(cause), RequestOutcome::Denied | RequestOutcome::Refused) =>
        {
            let is_missing = matches!(error, DbError::Invalid);
            let kind = if is_missing { OpenErrorKind::Missing } else { OpenErrorKind::Refused };
            OpenError::new(kind, format!("the cluster refuses: {words}"))
        }
        _ => {
            let is_refused = outcome(cause) == RequestOutcome::Refused;
            let kind = if is_refused { OpenErrorKind::Refused } else { OpenErrorKind::Passing };
            OpenError::new(kind, format!("the cluster did not answer: {cause}. Try again"))
        }
    }
}

fn of_attempt(error: &RequestAttemptError) -> RequestOutcome {
    match error {
        RequestAttemptError::UnableToAllocStreamId => RequestOutcome::NotBegun,
        RequestAttemptError::SerializationError(_)
        | RequestAttemptError::CqlRequestSerialization(_)
        | RequestAttemptError::RepreparedIdChanged { .. } => RequestOutcome::Refused,
        RequestAttemptError::DbError(error, _) => of_server(error),
        _ => RequestOutcome::Unknown,
    }
}

fn of_server(error: &DbError) -> RequestOutcome {
    match error {
        DbError::Unprepared { .. } => RequestOutcome::NotBegun,
        DbError::SyntaxError
        | DbError::Invalid
        | DbError::ConfigError
        | DbError::AlreadyExists { .. }
        | DbError::ProtocolError => RequestOutcome::Refused,
        DbError::AuthenticationError | DbError::Unauthorized => RequestOutcome::Denied,
        _ => RequestOutcome::Unknown,
    }
}

#[cfg(test)]
mod tests {
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
            DbError::FunctionFailure {
                keyspace: String::new(),
                function: String::new(),
                arg_types: Vec::new(),
            },
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
}
