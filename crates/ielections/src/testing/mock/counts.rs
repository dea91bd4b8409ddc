//! What really happened, so that a run that never met a fault can't pass for one that survived it.

use super::Verb;
use std::collections::BTreeMap;

/// How often each thing happened.
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
    /// Calls that were under way for a while before they were applied.
    pub slow_requests: u64,
    /// Calls whose answer was under way for a while.
    pub slow_answers: u64,
    /// Calls that hung.
    pub hung: u64,
    /// Writes applied after their caller had been told `Unknown` or had gone away.
    pub landed_late: u64,
    /// Writes that arrived after their caller had been told `Unknown` or had gone away, and were refused.
    pub refused_late: u64,
    /// Records overwritten or wiped under their leader's feet.
    pub tampered: u64,
}
