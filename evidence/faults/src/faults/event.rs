//! [`Event`]: what happened in a run, and how often ([`Counts`]).

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
};

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
            Self::FailedOver => "synchronous standbys promoted",
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
