//! What a handle answers after a fail-over, as values without I/O. `statements.rs` of each driver has the SQL.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "not every build has such a driver, or exports this for the check"
)]

use super::errors::is_met;
use crate::step::{Step, StepOutcome};
use ielections::{Slot, Vacant};

/// By how much epochs after a fail-over exceed those before it, in milliseconds: more than a candidate's clock may be
/// ahead, and the promoted server's behind.
pub const EPOCHS_OF_A_FAIL_OVER: u64 = 24 * 60 * 60 * 1000;

/// What it means that a step has changed nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RefusalCause {
    /// Its condition does not hold: this slot stands.
    Refused(Slot),
    /// The server has a history that the step does not name. A claim adopts it; a leadership has ended with it.
    OtherHistory,
    /// The server has the history, and shows a slot in which the condition holds.
    NotShown,
}

/// Whether the step claims a slot that was never led, which has no row yet.
pub fn is_insertion(step: &Step) -> bool {
    matches!(step, Step::Claim { from: Slot::Vacant(Vacant { last_epoch: None }), .. })
}

/// Decides what it means that a claim, a renewal or a release has changed nothing, if the slot `stands` as shown, and
/// the server has the history that the step names (`is_ours`).
pub fn unwritten(step: &Step, stands: Slot, is_ours: bool) -> RefusalCause {
    match is_ours {
        true if !is_met(step, &stands) => RefusalCause::Refused(stands),
        // A slot without a row, after a fail-over: it has to be adopted by itself.
        true if is_insertion(step) => RefusalCause::OtherHistory,
        true => RefusalCause::NotShown,
        false => RefusalCause::OtherHistory,
    }
}

/// Decides what a claim from the state `from` is answered once the history was adopted and the slot `stands`. Whatever
/// became of the adoption, the claim is not applied, and is not sent again. `None`: it is worth another try.
pub fn claim_after_adoption(from: &Slot, stands: Slot) -> Option<StepOutcome> {
    (!stands.is_as_expected(from)).then(|| StepOutcome::Refused(stands.into()))
}
