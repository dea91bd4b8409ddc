//! [`Counts`]: the effects of faults, so that a test can check that a fault really happened.

use super::Verb;
use std::collections::BTreeMap;

/// How often each effect happened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Calls, by verb.
    pub calls: BTreeMap<Verb, u64>,
    /// Calls failed with `NotApplied` or `Unavailable`.
    pub not_applied: u64,
    /// Calls failed with `Fatal` or `Replaced`.
    pub fatal: u64,
    /// Writes that failed with `Unknown` and were never applied, and reads that never arrived.
    pub lost_requests: u64,
    /// Writes that *were applied* and failed with `Unknown`, and reads whose answer was lost.
    pub lost_answers: u64,
    /// Calls with a slow request.
    pub slow_requests: u64,
    /// Calls with a slow answer.
    pub slow_answers: u64,
    /// Calls that hung.
    pub hung: u64,
    /// Writes applied after their caller had got `Unknown` or was dropped.
    pub landed_late: u64,
    /// Writes refused after their caller had got `Unknown` or was dropped.
    pub refused_late: u64,
    /// Records overwritten or deleted past their leader.
    pub tampered: u64,
}
