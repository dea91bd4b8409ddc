//! What really happened, counted where it happens: a run that met no fault proves nothing.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
};

/// Something that went wrong, or came late.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Happened {
    /// A write was applied, and its answer replaced by an error that says neither yes nor no.
    ForgedApplied,
    /// A write was refused, and its answer replaced in the same way.
    ForgedRefused,
    /// A write was answered in that way, and never sent.
    ForgedUnsent,
    /// A write was answered with "too many requests", and never sent.
    Throttled,
    /// A connection was cut while it was in use.
    ConnectionCut,
    /// A new connection was ended before it began.
    ConnectionRefused,
    /// An answer was held up.
    AnswerDelayed,
    /// A write came to the server late, after silence.
    WriteDelivered,
    /// A server was stopped as it stood.
    ServerStopped,
    /// So many servers were stopped that no majority was left.
    QuorumLost,
    /// A server was killed, and started again.
    ServerRestarted,
    /// A process crashed while it led.
    LeaderCrashed,
    /// A write of a deposed leader was sent after it, and refused.
    DeposedRefused,
}

impl Happened {
    /// Outcomes that leave the client in doubt.
    pub(crate) const AMBIGUOUS: [Self; 3] = [Self::ForgedApplied, Self::ForgedRefused, Self::ForgedUnsent];
}

impl fmt::Display for Happened {
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
            Self::ServerStopped => "servers stopped as they stood",
            Self::QuorumLost => "times that no quorum was left",
            Self::ServerRestarted => "servers killed and started again",
            Self::LeaderCrashed => "leaders crashed",
            Self::DeposedRefused => "late writes of deposed leaders, all refused",
        })
    }
}

/// How often each thing happened.
#[derive(Default, Debug)]
pub(crate) struct Counts(Mutex<BTreeMap<Happened, u64>>);

impl Counts {
    pub(crate) fn add(&self, what: Happened) {
        *self.counts().entry(what).or_default() += 1;
    }

    pub(crate) fn of(&self, what: Happened) -> u64 {
        self.counts().get(&what).copied().unwrap_or_default()
    }

    pub(crate) fn ambiguous(&self) -> u64 {
        Happened::AMBIGUOUS.iter().map(|what| self.of(*what)).sum()
    }

    /// Every change is one step, so poison carries no information here.
    fn counts(&self) -> std::sync::MutexGuard<'_, BTreeMap<Happened, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
