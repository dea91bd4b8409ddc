//! The faults, and their order: random from a seed, every kind once before any repeats. [`Event`]: what happened in a
//! run, and how often ([`Counts`]).

use super::{
    SLOTS, TTL,
    network::{Conditions, Link},
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use vvm_storage::SlotNumber;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Fault {
    /// The connections of the leader are cut, or of another candidate if there is no leader.
    CutLeader,
    /// The connections of all candidates are cut.
    CutAll,
    /// Answers come later than the time limit of an attempt.
    Slow,
    /// Nothing of a leader arrives in either direction, until the fault ends; then all of it does.
    Silent,
    /// Some writes are answered with an error that leaves their outcome unknown.
    Forged,
    /// A server is stopped with SIGSTOP.
    StopOne,
    /// So many servers are stopped that no quorum is left.
    StopMost,
    /// A server is killed, and started again.
    KillOne,
    /// A server is killed for good, and a standby that has all of its writes is promoted.
    FailOver,
    /// A server is killed for good, and a standby that lacks the last writes is promoted.
    FailOverLagging,
    /// A standby is promoted, and at the end the former server is used again, which lacks all since then.
    SwitchBack,
    /// A server goes on from a copy of its files that was made when the fault began, as an operator is told to.
    Restore,
    /// The record of a slot is deleted by hand, while it is led as a rule. When the fault ends, what stands there
    /// is deleted again: a placeholder, or the record of the next leader.
    DeleteRecord,
    /// As [`DeleteRecord`](Self::DeleteRecord), for all that is stored of the name, its settings included.
    DeleteAll,
}

/// What is deleted by hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deletion {
    /// The record of one slot.
    Record(SlotNumber),
    /// Every record and setting of the name.
    All,
}

impl Deletion {
    /// Whether the record of this slot is deleted.
    pub(super) fn concerns(self, slot: SlotNumber) -> bool {
        match self {
            Self::Record(deleted) => deleted == slot,
            Self::All => true,
        }
    }
}

impl Fault {
    pub(super) const OF_NETWORKS: [Self; 5] =
        [Self::CutLeader, Self::CutAll, Self::Slow, Self::Silent, Self::Forged];

    /// Returns its effect on connections, and whether it is for one candidate. `None` for a fault of servers.
    pub(super) fn conditions(self) -> Option<(Conditions, bool)> {
        match self {
            Self::CutLeader => Some((Conditions::link(Link::Cut), true)),
            Self::CutAll => Some((Conditions::link(Link::Cut), false)),
            // The time limit of an attempt is a tenth of the TTL.
            Self::Slow => Some((Conditions::link(Link::Slow(TTL.get() / 4)), false)),
            Self::Silent => Some((Conditions::link(Link::Silent), true)),
            Self::Forged => Some((Conditions::forging(0.3), false)),
            _ => None,
        }
    }

    /// Whether another server, or another state of a server, is used after it.
    pub(super) fn changes_history(self) -> bool {
        matches!(self, Self::FailOver | Self::FailOverLagging | Self::SwitchBack | Self::Restore)
    }

    /// Returns what is deleted at its beginning and at its end.
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

    /// Returns its duration: half a TTL to three TTLs, so that some leaders survive it.
    pub(super) fn lasts(self, rng: &mut fastrand::Rng) -> Duration {
        let most = match self {
            // Long enough for the leader's deadline.
            Self::StopMost => return TTL.get().mul_f64(1.5 + rng.f64()),
            // Long enough for leaders on the server that was promoted.
            Self::SwitchBack => return TTL.get().mul_f64(2.5 + rng.f64()),
            _ => TTL.get() * 3,
        };
        (TTL.get() / 2) + (most - TTL.get() / 2).mul_f64(rng.f64())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::CutLeader => "connections of one cut",
            Self::CutAll => "all connections cut",
            Self::Slow => "slow answers",
            Self::Silent => "messages held back",
            Self::Forged => "forged answers",
            Self::StopOne => "one server stopped",
            Self::StopMost => "no quorum",
            Self::KillOne => "one server killed",
            Self::FailOver => "fail-over, complete",
            Self::FailOverLagging => "fail-over, lagging",
            Self::SwitchBack => "fail-over and back",
            Self::Restore => "restore in place",
            Self::DeleteRecord => "a record deleted twice",
            Self::DeleteAll => "all deleted twice",
        })
    }
}

/// The order of faults.
pub(super) struct Schedule {
    kinds: Vec<Fault>,
    ahead: Vec<Fault>,
    pub(super) rng: fastrand::Rng,
}

impl Schedule {
    pub(super) fn new(of_servers: &[Fault], seed: u64) -> Self {
        let kinds = [&Fault::OF_NETWORKS, of_servers].concat();
        Self { kinds, ahead: Vec::new(), rng: fastrand::Rng::with_seed(seed) }
    }

    /// Whether every kind was injected equally often.
    pub(super) fn is_complete_round(&self) -> bool {
        self.ahead.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<Fault> {
        if self.ahead.is_empty() {
            self.ahead.clone_from(&self.kinds);
            self.rng.shuffle(&mut self.ahead);
        }
        self.ahead.pop()
    }
}

/// An effect of a fault, as the report says it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    ForgedApplied,
    ForgedRefused,
    ForgedUnsent,
    Throttled,
    ConnectionCut,
    ConnectionRefused,
    AnswerDelayed,
    WriteDelivered,
    ServerStopped,
    QuorumLost,
    ServerRestarted,
    FailedOver,
    FailedOverLagging,
    SwitchedBack,
    Restored,
    Repeated,
    Deleted,
    LostByDeletion,
    LeaderCrashed,
    DeposedRefused,
}

impl Event {
    /// Events after which the client does not know the outcome of its write.
    pub(crate) const AMBIGUOUS: [Self; 3] = [Self::ForgedApplied, Self::ForgedRefused, Self::ForgedUnsent];
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::ForgedApplied => "ambiguous answers forged after the write was applied",
            Self::ForgedRefused => "ambiguous answers forged after the write was refused",
            Self::ForgedUnsent => "ambiguous answers forged to a write that was lost",
            Self::Throttled => "writes throttled",
            Self::ConnectionCut => "connections cut",
            Self::ConnectionRefused => "connections refused",
            Self::AnswerDelayed => "answers delayed",
            Self::WriteDelivered => "writes delivered late",
            Self::ServerStopped => "servers stopped",
            Self::QuorumLost => "times that no quorum was left",
            Self::ServerRestarted => "servers killed and started again",
            Self::FailedOver => "standbys with all writes promoted",
            Self::FailedOverLagging => "lagging standbys promoted",
            Self::SwitchedBack => "switches back to a former primary that lags",
            Self::Restored => "restores in place",
            Self::Repeated => "connections whose messages were repeated after their end",
            Self::Deleted => "deletions by hand",
            Self::LostByDeletion => "leaders lost because their record was deleted",
            Self::LeaderCrashed => "leaders crashed",
            Self::DeposedRefused => "late writes of deposed leaders, all refused",
        })
    }
}

/// How often each event happened.
#[derive(Default, Debug)]
pub(crate) struct Counts(Mutex<BTreeMap<Event, u64>>);

impl Counts {
    pub(crate) fn add(&self, what: Event) {
        *self.counts().entry(what).or_default() += 1;
    }

    pub(crate) fn of(&self, what: Event) -> u64 {
        self.counts().get(&what).copied().unwrap_or_default()
    }

    /// Those that happened.
    pub(crate) fn all(&self) -> BTreeMap<Event, u64> {
        self.counts().clone()
    }

    pub(crate) fn ambiguous(&self) -> u64 {
        Event::AMBIGUOUS.iter().map(|what| self.of(*what)).sum()
    }

    /// Every change is one step, so poison carries no information here.
    fn counts(&self) -> std::sync::MutexGuard<'_, BTreeMap<Event, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
