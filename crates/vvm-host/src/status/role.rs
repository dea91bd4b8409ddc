//! [`Role`]: what this process does, in the order in which it does it.

use ielections::{Loss, Standing};
use std::{fmt, sync::Arc, time::Duration};
use vvm_clock::Instant;

/// What this process does now.
#[derive(Clone, Debug)]
pub enum Role {
    /// Opens its storage.
    Opening,
    /// Waits for leadership.
    Campaigning,
    /// Leads, and its work is about to start.
    Starting(Leading),
    /// Leads, and works.
    Leading(Leading),
    /// Holds its slot, and does no work for a while.
    Idling {
        /// What is held, and how it stands.
        leading: Leading,
        /// Why there is no work.
        idle: Idle,
    },
    /// Still holds a slot, or did a moment ago, and its work stops or has stopped.
    Stopping {
        /// What is held, and how it stands.
        leading: Leading,
        /// What made it stop, seen first.
        why: WhyStopping,
    },
    /// Everything has ended, or is about to: nothing is campaigned for any more.
    Ended {
        /// The outcome, in words.
        why: Arc<str>,
    },
}

/// A leadership.
#[derive(Clone, Debug)]
pub struct Leading {
    /// Of the slot with this number.
    pub slot: u32,
    /// Epoch, incarnation, time left, loss.
    pub standing: Standing,
    /// When it was taken note of.
    pub since: Instant,
}

/// Why a leadership goes without work for a while.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Idle {
    /// What is waited for.
    pub until: IdleUntil,
    /// How long, if nothing comes between.
    pub pause: Duration,
    /// How the work ended.
    pub ended: Arc<str>,
}

/// What a leadership without work waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdleUntil {
    /// For the work to be started again.
    Restart {
        /// How often that will have been.
        number: u32,
        /// How often it may be; none for any number of times.
        limit: Option<u32>,
    },
    /// For its own end: the work is done, and nobody else shall do it again so soon.
    Release,
}

/// Why work stops.
#[derive(Clone, Debug)]
pub enum WhyStopping {
    /// The leadership is lost.
    Lost(Loss),
    /// Somebody told us to.
    Asked,
    /// Whoever contains it has died.
    GuardianDied,
    /// It does not work, or somebody else shall lead: the leadership is given up, though it could be kept.
    GivenUp(Arc<str>),
    /// It has ended by itself, or could not start.
    WorkEnded,
}

impl Role {
    /// One word, the same in metrics, JSON and logs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Campaigning => "campaigning",
            Self::Starting(_) => "starting",
            Self::Leading(_) => "leading",
            Self::Idling { idle: Idle { until: IdleUntil::Restart { .. }, .. }, .. } => "restarting",
            Self::Idling { idle: Idle { until: IdleUntil::Release, .. }, .. } => "holding",
            Self::Stopping { .. } => "stopping",
            Self::Ended { .. } => "ended",
        }
    }

    /// Every word that there is.
    pub const WORDS: [&'static str; 8] =
        ["opening", "campaigning", "starting", "leading", "restarting", "holding", "stopping", "ended"];

    /// The leadership, if there is one, be it one that ends.
    pub fn leadership(&self) -> Option<&Leading> {
        match self {
            Self::Starting(leading)
            | Self::Leading(leading)
            | Self::Idling { leading, .. }
            | Self::Stopping { leading, .. } => Some(leading),
            Self::Opening | Self::Campaigning | Self::Ended { .. } => None,
        }
    }
}

/// A line for people.
impl fmt::Display for Role {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opening => out.write_str("opening the storage"),
            Self::Campaigning => out.write_str("waiting for leadership"),
            Self::Starting(leading) => write!(out, "starting, {leading}"),
            Self::Leading(leading) => write!(out, "leading, {leading}"),
            Self::Idling { leading, idle } => write!(out, "{}, {leading}: {idle}", self.word()),
            Self::Stopping { leading, why } => write!(out, "stopping, {leading}: {why}"),
            Self::Ended { why } => write!(out, "ended: {why}"),
        }
    }
}

impl fmt::Display for Leading {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "slot {}, epoch {}", self.slot, self.standing.epoch())
    }
}

/// For people.
impl fmt::Display for Idle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { until, pause, ended } = self;
        match until {
            IdleUntil::Restart { number, limit } => {
                let of = limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
                write!(out, "the command {ended}; restart {number}{of} in {pause:?}")
            }
            IdleUntil::Release => {
                write!(out, "the command {ended}; holding the leadership for another {pause:.1?}")
            }
        }
    }
}

impl WhyStopping {
    /// One word, the same in JSON and logs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Lost(_) => "lost",
            Self::Asked => "asked",
            Self::GuardianDied => "guardian_died",
            Self::GivenUp(_) => "given_up",
            Self::WorkEnded => "work_ended",
        }
    }
}

/// For people.
impl fmt::Display for WhyStopping {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(loss) => write!(out, "leadership lost: {loss}"),
            Self::Asked => out.write_str("told to"),
            Self::GuardianDied => out.write_str("the guardian died"),
            Self::GivenUp(why) => out.write_str(why),
            Self::WorkEnded => out.write_str("the work has ended"),
        }
    }
}
