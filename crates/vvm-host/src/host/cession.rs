//! Giving up a leadership that could be kept: its work is stopped, the record released, and others go first.
//!
//! What lives here: who may ask for it, and that it was asked for. What follows stands in `lead`.

use super::{health::Unhealthy, surroundings::Surroundings};
use crate::{cli::args::OnLoss, requests::Demand};
use ielections::Terms;
use std::{fmt, time::Duration};
use tokio::sync::SetOnce;

/// How long others have the first chance after a step-down: five looks of a standby that looks once a second, which is
/// the longest pause between two.
pub(crate) const FIRST_CHANCE: Duration = Duration::from_secs(5);

/// Why a leadership is given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// The command does not work.
    Unhealthy(Unhealthy),
    /// An operator asked for it.
    Demanded(Demand),
}

impl Reason {
    /// Whether this process is a candidate again afterwards.
    pub(super) fn rejoins(&self, on_loss: OnLoss) -> bool {
        match self {
            Self::Unhealthy(_) => on_loss == OnLoss::Rejoin,
            Self::Demanded(_) => true,
        }
    }

    /// One word, for logs.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Unhealthy(_) => "unhealthy",
            Self::Demanded(demand) => demand.word(),
        }
    }

    /// Who asked for it, where that is known.
    pub(super) fn by(&self) -> Option<&str> {
        match self {
            Self::Unhealthy(_) => None,
            Self::Demanded(demand) => demand.by(),
        }
    }

    /// Who shall come next, where somebody was named.
    pub(super) fn to(&self) -> Option<&str> {
        match self {
            Self::Unhealthy(_) => None,
            Self::Demanded(demand) => demand.to(),
        }
    }

    /// Whether nothing is wrong here: it is campaigned on at once, and whoever is to go first does by the gate (`gate`).
    pub(super) fn is_wanted(&self) -> bool {
        matches!(self, Self::Demanded(_))
    }
}

/// For people.
impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unhealthy(unhealthy) => unhealthy.fmt(out),
            Self::Demanded(demand) => demand.fmt(out),
        }
    }
}

/// Whether one leadership is to be given up.
#[derive(Debug, Default)]
pub(super) struct Cession {
    reason: SetOnce<Reason>,
}

impl Cession {
    /// Asks for it. The first reason stands.
    pub(super) fn ask(&self, reason: Reason) {
        // The second one comes to a leadership that is being given up.
        let _ = self.reason.set(reason);
    }

    /// Why, once it was asked for.
    pub(super) fn reason(&self) -> Option<&Reason> {
        self.reason.get()
    }

    /// Resolves when it was asked for, with the reason.
    ///
    /// # Cancel safety
    /// May be dropped and asked again at will.
    pub(super) async fn asked(&self) -> &Reason {
        self.reason.wait().await
    }
}

/// How long one who has given up is no candidate: a standby looks at the record at least once a poll, and has as long
/// again to claim it, and as long again in case a claim goes wrong.
pub(super) fn others_first(surroundings: &Surroundings) -> Duration {
    Terms::usual_poll(surroundings.run.ttl) * 3
}
