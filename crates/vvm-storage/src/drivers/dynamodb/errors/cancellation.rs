//! Maps the reasons of a cancelled transaction. Such a transaction has changed nothing.

use super::Failure;
use aws_sdk_dynamodb::types::CancellationReason;

/// The outcome of a cancelled transaction.
#[derive(Debug)]
pub(in super::super) enum Cancellation {
    /// A condition failed.
    Refused,
    /// The transaction failed.
    Failed(Failure),
}

impl Cancellation {
    /// Maps the reasons. Each action has one; `None` means that the action itself was in order.
    pub(in super::super) fn of(reasons: &[CancellationReason], said: String) -> Self {
        let contains = |codes: &[&str]| {
            reasons.iter().filter_map(CancellationReason::code).any(|code| codes.contains(&code))
        };
        if contains(&["ConditionalCheckFailed"]) {
            Self::Refused
        } else if contains(&["AccessDenied"]) {
            Self::Failed(Failure::Denied(said))
        } else if contains(&["ValidationError", "ItemCollectionSizeLimitExceeded", "DuplicateItem"]) {
            Self::Failed(Failure::Refused(said))
        } else if contains(&["TransactionConflict"]) {
            Self::Failed(Failure::Conflict(said))
        } else if contains(&["ProvisionedThroughputExceeded", "ThrottlingError", "RequestLimitExceeded"]) {
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
            (&["AccessDenied"], "Fatal"),
            (&["SomethingNew"], "Unknown"),
            (&["None"], "Unknown"),
            (&[], "Unknown"),
        ] {
            assert_eq!(kind(codes), expected, "{codes:?}");
        }
    }
}
