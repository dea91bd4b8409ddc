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
    /// Calls whose request arrived late.
    pub slow_requests: u64,
    /// Calls whose answer arrived late.
    pub slow_answers: u64,
    /// Calls that hung.
    pub hung: u64,
    /// Writes applied after their caller got `Unknown` or stopped waiting.
    pub landed_late: u64,
    /// Writes refused after their caller got `Unknown` or stopped waiting.
    pub refused_late: u64,
    /// Records that a test replaced or deleted without their leader's knowledge.
    pub tampered: u64,
}
