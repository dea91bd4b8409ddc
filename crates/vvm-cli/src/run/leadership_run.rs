//! [`LeadershipRun`]: what the command of one campaign did.

use super::health::Unhealthy;
use crate::leadership::Leadership;
use std::sync::OnceLock;
use vvm_containment::Supervised;

/// The record of one campaign and of the leadership that followed, if any.
#[derive(Debug, Default)]
pub(super) struct LeadershipRun {
    /// Set when a slot is won.
    pub(super) leadership: OnceLock<Leadership>,
    /// Set when the command has ended for the last time and no process of it is left.
    pub(super) worked: OnceLock<Worked>,
    /// Set when the command has failed its checks.
    pub(super) unhealthy: OnceLock<Unhealthy>,
}

/// How the work of a leadership ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Worked {
    /// The last run of the command.
    pub(super) last: Supervised,
    pub(super) end: WorkEnd,
}

/// What ended the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WorkEnd {
    /// The command ended by itself, and is not to be restarted.
    Finished,
    /// The command was stopped.
    Stopped,
    /// A stop came between two runs of the command.
    BetweenRuns,
}
