//! What goes wrong, and for how long: drawn from a seed, every kind once before any comes again.

use super::{TTL, network::Path, network::Weather};
use std::{fmt, time::Duration};

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Fault {
    /// Connections of one contender, the leader's if there is one, are cut.
    CutLeader,
    /// The connections of all contenders.
    CutAll,
    /// Answers come late, beyond the time that an attempt has.
    Slow,
    /// A leader hears nothing and is not heard, and later all that it sent arrives.
    Silence,
    /// Some writes are answered with an error that leaves everything open.
    Forged,
    /// A server is stopped as it stands.
    StopOne,
    /// So many are stopped that no quorum is left.
    StopMost,
    /// A server is killed, and started again.
    KillOne,
}

impl Fault {
    pub(super) const OF_NETWORKS: [Self; 5] =
        [Self::CutLeader, Self::CutAll, Self::Slow, Self::Silence, Self::Forged];

    /// Its effect on connections, and whether for one contender alone; `None` for a fault of the servers.
    pub(super) fn weather(self) -> Option<(Weather, bool)> {
        match self {
            Self::CutLeader => Some((Weather::path(Path::Cut), true)),
            Self::CutAll => Some((Weather::path(Path::Cut), false)),
            // An attempt has a tenth of a TTL.
            Self::Slow => Some((Weather::path(Path::Slow(TTL.get() / 4)), false)),
            Self::Silence => Some((Weather::path(Path::Silent), true)),
            Self::Forged => Some((Weather::forging(0.3), false)),
            Self::StopOne | Self::StopMost | Self::KillOne => None,
        }
    }

    /// At least half a TTL, and up to three: leaders survive some of it.
    pub(super) fn lasts(self, dice: &mut fastrand::Rng) -> Duration {
        let most = match self {
            // Long enough for the leader's deadline.
            Self::StopMost => return TTL.get().mul_f64(1.5 + dice.f64()),
            _ => TTL.get() * 3,
        };
        (TTL.get() / 2) + (most - TTL.get() / 2).mul_f64(dice.f64())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::CutLeader => "connections of one cut",
            Self::CutAll => "all connections cut",
            Self::Slow => "slow answers",
            Self::Silence => "silence around one",
            Self::Forged => "forged answers",
            Self::StopOne => "one server stopped",
            Self::StopMost => "no quorum",
            Self::KillOne => "one server killed",
        })
    }
}

/// Which comes next.
pub(super) struct Course {
    kinds: Vec<Fault>,
    ahead: Vec<Fault>,
    pub(super) dice: fastrand::Rng,
}

impl Course {
    pub(super) fn new(of_servers: &[Fault], seed: u64) -> Self {
        let kinds = [&Fault::OF_NETWORKS, of_servers].concat();
        Self { kinds, ahead: Vec::new(), dice: fastrand::Rng::with_seed(seed) }
    }

    /// Whether every kind has come as often as every other one.
    pub(super) fn is_round(&self) -> bool {
        self.ahead.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<Fault> {
        if self.ahead.is_empty() {
            self.ahead.clone_from(&self.kinds);
            self.dice.shuffle(&mut self.ahead);
        }
        self.ahead.pop()
    }
}
