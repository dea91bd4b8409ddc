//! The faults of connections and servers.

use super::{
    SLOTS, TTL,
    event::reported,
    network::{Conditions, Link},
};
use std::time::Duration;
use vvm_storage::SlotNumber;

reported! {
    Fault {
        /// The connections of the leader are cut, or of another candidate if there is no leader.
        CutLeader = "connections of one cut",
        /// The connections of all candidates are cut.
        CutAll = "all connections cut",
        /// Answers come later than the time limit of an attempt.
        Slow = "slow answers",
        /// Nothing of a leader arrives in either direction, until the fault ends; then all of it does.
        Silent = "messages held back",
        StopOne = "one server stopped",
        StopMost = "no quorum",
        KillOne = "one server killed",
        /// A server is killed for good, and a standby that has all of its writes is promoted.
        FailOver = "fail-over, complete",
        /// A server is killed for good, and a standby that lacks the last writes is promoted.
        FailOverLagging = "fail-over, lagging",
        /// A standby is promoted, and at the end the former server is used again, which lacks all since then.
        SwitchBack = "fail-over and back",
        /// A server goes on from a copy of its files that was made when the fault began, as an operator is told to.
        Restore = "restore in place",
        /// The record of a slot is deleted by hand, while it is led as a rule. When the fault ends, what stands there
        /// is deleted again: a placeholder, or the record of the next leader.
        DeleteRecord = "a record deleted twice",
        /// As [`DeleteRecord`](Self::DeleteRecord), for all that is stored of the name, its settings included.
        DeleteAll = "all deleted twice",
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deletion {
    Record(SlotNumber),
    All,
}

impl Deletion {
    pub(super) fn concerns(self, slot: SlotNumber) -> bool {
        match self {
            Self::Record(deleted) => deleted == slot,
            Self::All => true,
        }
    }
}

impl Fault {
    pub(super) const OF_NETWORKS: [Self; 4] = [Self::CutLeader, Self::CutAll, Self::Slow, Self::Silent];

    /// Returns its effect on connections, and whether it is for one candidate. `None` for a fault of servers.
    pub(super) fn conditions(self) -> Option<(Conditions, bool)> {
        match self {
            Self::CutLeader => Some((Conditions::link(Link::Cut), true)),
            Self::CutAll => Some((Conditions::link(Link::Cut), false)),
            // The time limit of an attempt is a tenth of the TTL.
            Self::Slow => Some((Conditions::link(Link::Slow(TTL.get() / 4)), false)),
            Self::Silent => Some((Conditions::link(Link::Silent), true)),
            _ => None,
        }
    }

    /// Whether another server, or another state of a server, is used after it, or a record is deleted: what no order of the
    /// clients' steps explains. A fail-over to a standby that has all of them is one, too: its adoption is a step.
    pub(super) fn is_beyond_histories(self) -> bool {
        !self.keeps_history() || self == Self::FailOver
    }

    /// Whether all that happens to a storage under it are the steps of its clients, and adoptions.
    pub(super) fn keeps_history(self) -> bool {
        !matches!(
            self,
            Self::FailOverLagging | Self::SwitchBack | Self::Restore | Self::DeleteRecord | Self::DeleteAll
        )
    }

    pub(super) fn deletion(self, rng: &mut fastrand::Rng) -> Option<Deletion> {
        match self {
            Self::DeleteRecord => {
                let slots: Vec<_> = SlotNumber::all(SLOTS).collect();
                rng.choice(slots).map(Deletion::Record)
            }
            Self::DeleteAll => Some(Deletion::All),
            _ => None,
        }
    }

    /// Returns its duration in a fault run: half a TTL to three TTLs, so that some leaders survive it.
    pub(super) fn lasts(self, rng: &mut fastrand::Rng) -> Duration {
        match self {
            // Long enough for leaders on the server that was promoted.
            Self::SwitchBack => TTL.get().mul_f64(2.5 + rng.f64()),
            _ => TTL.get().mul_f64(0.5 + 2.5 * rng.f64()),
        }
    }
}
