//! [`Assumption`]: what each check assumes, to be dropped.

use crate::Check;

/// An assumption of `docs/contributing/architecture.md`, or a lemma that another check shows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, clap::ValueEnum)]
pub(crate) enum Assumption {
    /// Election: clocks advance within 10 % of true time.
    Clocks,
    /// Election: clocks count while the process is suspended.
    Suspend,
    /// Election: the deadman ends the process at its deadline.
    Deadman,
    /// Election: each attempt has an incarnation of its own.
    Incarnations,
    /// Election: the storage applies a write only if its condition holds.
    Conditions,
    /// Election: no other program changes the record.
    Record,
    /// Election: work has stopped before it is handed back.
    HandedBack,
    /// Adoption: a primary is stopped before another server is promoted.
    Stopped,
    /// Adoption: an adopted slot is held for the largest TTL.
    Waits,
    /// Adoption: the epoch of an adopted slot exceeds all that were given out.
    Raised,
    /// Adoption: a write lands only if the server has the history that it names.
    Compared,
    /// Containment: at the kill deadline, guardian or keeper runs.
    Acts,
    /// Containment: no process leaves the containment of its level.
    Contained,
    /// Containment: the command's own process gets its parent-death signal.
    ParentDeath,
    /// Warm: guardian and keeper enforce the deadline that they have confirmed.
    Confirmed,
    /// Warm: the keeper says that the tree is gone only if it is.
    Proof,
    /// Warm, with `--after-stop keep`: an app that says `stopped` has stopped its work.
    Word,
    /// Warm: a message counts only if the process that connected has sent it.
    Sender,
}

impl Assumption {
    /// The check that assumes it.
    pub(crate) fn check(self) -> Check {
        match self {
            Self::Clocks
            | Self::Suspend
            | Self::Deadman
            | Self::Incarnations
            | Self::Conditions
            | Self::Record
            | Self::HandedBack => Check::Election,
            Self::Stopped | Self::Waits | Self::Raised | Self::Compared => Check::Adoption,
            Self::Acts | Self::Contained | Self::ParentDeath => Check::Containment,
            Self::Confirmed | Self::Proof | Self::Word | Self::Sender => Check::Warm,
        }
    }
}
