//! Why a transaction was cancelled: of which nothing was done, whatever the reason.

use super::Failure;
use aws_sdk_dynamodb::types::CancellationReason;

/// What a cancelled transaction came to.
#[derive(Debug)]
pub(in super::super) enum Cancellation {
    /// A condition did not hold.
    Refused,
    /// It failed.
    Failed(Failure),
}

impl Cancellation {
    /// There is a reason for each action, `None` for those that nothing was wrong with.
    pub(in super::super) fn of(reasons: &[CancellationReason], said: String) -> Self {
        let is_there = |codes: &[&str]| {
            reasons.iter().filter_map(CancellationReason::code).any(|code| codes.contains(&code))
        };
        if is_there(&["ConditionalCheckFailed"]) {
            Self::Refused
        } else if is_there(&["AccessDenied"]) {
            Self::Failed(Failure::Denied(said))
        } else if is_there(&["ValidationError", "ItemCollectionSizeLimitExceeded", "DuplicateItem"]) {
            Self::Failed(Failure::Refused(said))
        } else if is_there(&["TransactionConflict"]) {
            Self::Failed(Failure::Conflict(said))
        } else if is_there(&["ProvisionedThroughputExceeded", "ThrottlingError", "RequestLimitExceeded"]) {
            Self::Failed(Failure::Throttled(said))
        } else {
            Self::Failed(Failure::Unanswered(said))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ielections::WriteError;

    fn kind(codes: &[&str]) -> &'static str {
        let reason = |code: &&str| CancellationReason::builder().code(*code).build();
        match Cancellation::of(&codes.iter().map(reason).collect::<Vec<_>>(), String::new()) {
            Cancellation::Refused => "Refused",
            Cancellation::Failed(failure) => match failure.into_write_error() {
                WriteError::NotApplied(_) => "NotApplied",
                WriteError::Unknown(_) => "Unknown",
                WriteError::Fatal(_) => "Fatal",
                WriteError::Replaced(_) => "Replaced",
            },
        }
    }

    #[test]
    fn each_reason_is_what_the_table_says() {
        for (codes, expected) in [
            (&["None", "ConditionalCheckFailed"][..], "Refused"),
            // Both: what was compared has been committed.
            (&["TransactionConflict", "ConditionalCheckFailed"], "Refused"),
            (&["None", "TransactionConflict"], "NotApplied"),
            (&["ThrottlingError", "None"], "NotApplied"),
            (&["None", "ProvisionedThroughputExceeded"], "NotApplied"),
            (&["None", "ValidationError"], "Fatal"),
            (&["ItemCollectionSizeLimitExceeded"], "Fatal"),
            (&["AccessDenied"], "Fatal"),
            (&["SomethingNew"], "Unknown"),
            (&["None"], "Unknown"),
            (&[], "Unknown"),
        ] {
            assert_eq!(kind(codes), expected, "{codes:?}");
        }
    }
}
