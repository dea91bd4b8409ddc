use ielections::{Loss, Standing};
use std::{fmt, sync::Arc, time::Duration};
use vvm_clock::Instant;

/// What this process does now.
#[derive(Clone, Debug)]
pub enum Role {
    /// It opens its storage.
    Opening,
    /// It does not campaign, because it is not ready to lead.
    Unready,
    /// It waits for leadership.
    Campaigning,
    /// It leads, and the work is about to start.
    Starting(SlotLeadership),
    /// It leads, and the work runs.
    Leading(SlotLeadership),
    /// It leads, and no work runs for a while.
    Idling {
        /// The leadership.
        leading: SlotLeadership,
        /// Why no work runs.
        idle: PendingRestart,
    },
    /// The work stops or has stopped. The leadership may have ended already.
    Stopping {
        /// The leadership.
        leading: SlotLeadership,
        /// The first reason to stop.
        why: WhyStopping,
    },
    /// It campaigns no more, and ends.
    Ended {
        /// The outcome.
        why: Arc<str>,
    },
}

/// A leadership.
#[derive(Clone, Debug)]
pub struct SlotLeadership {
    /// The number of its slot.
    pub slot: u32,
    /// Epoch, incarnation, time left, loss.
    pub standing: Standing,
    /// When it was acquired.
    pub since: Instant,
}

/// Why no work runs under a leadership.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingRestart {
    /// The number of the restart that follows, from 1.
    pub number: u32,
    /// How many restarts are allowed; `None` for any number.
    pub limit: Option<u32>,
    /// How long it takes until then.
    pub pause: Duration,
    /// How the work ended.
    pub ended: Arc<str>,
}

/// Why work stops.
#[derive(Clone, Debug)]
pub enum WhyStopping {
    /// The leadership is lost.
    Lost(Loss),
    /// An operator or the program requested a stop.
    Asked,
    /// The guardian died, which contains the work.
    GuardianDied,
    /// The host gives its leadership up, as for failed checks, a pause, a step-down, or work that is not ready.
    GivenUp(Arc<str>),
    /// The work has ended by itself, or could not start.
    WorkEnded,
}

impl Role {
    /// Returns one word, the same in metrics, JSON and logs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Unready => "unready",
            Self::Campaigning => "campaigning",
            Self::Starting(_) => "starting",
            Self::Leading(_) => "leading",
            Self::Idling { .. } => "restarting",
            Self::Stopping { .. } => "stopping",
            Self::Ended { .. } => "ended",
        }
    }

    /// All words that [`word`](Self::word) returns.
    pub const WORDS: [&'static str; 8] =
        ["opening", "unready", "campaigning", "starting", "leading", "restarting", "stopping", "ended"];

    /// Returns the leadership, if there is one, even if it ends.
    pub fn leadership(&self) -> Option<&SlotLeadership> {
        match self {
            Self::Starting(leading)
            | Self::Leading(leading)
            | Self::Idling { leading, .. }
            | Self::Stopping { leading, .. } => Some(leading),
            Self::Opening | Self::Unready | Self::Campaigning | Self::Ended { .. } => None,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opening => out.write_str("opening the storage"),
            Self::Unready => out.write_str("not ready to lead"),
            Self::Campaigning => out.write_str("waiting for leadership"),
            Self::Starting(leading) => write!(out, "starting, {leading}"),
            Self::Leading(leading) => write!(out, "leading, {leading}"),
            Self::Idling { leading, idle } => write!(out, "{}, {leading}: {idle}", self.word()),
            Self::Stopping { leading, why } => write!(out, "stopping, {leading}: {why}"),
            Self::Ended { why } => write!(out, "ended: {why}"),
        }
    }
}

impl fmt::Display for SlotLeadership {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "slot {}, epoch {}", self.slot, self.standing.epoch())
    }
}

impl fmt::Display for PendingRestart {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, limit, pause, ended } = self;
        let of = limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
        let (seconds, millis) = (pause.as_secs(), pause.as_millis());
        write!(out, "the command {ended}; restart {number}{of} in ")?;
        if pause.subsec_nanos() == 0 { write!(out, "{seconds}s") } else { write!(out, "{millis}ms") }
    }
}

impl WhyStopping {
    /// Returns one word, the same in JSON and logs.
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

impl fmt::Display for WhyStopping {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(loss) => write!(out, "leadership lost: {loss}"),
            Self::Asked => out.write_str("stop requested"),
            Self::GuardianDied => out.write_str("the guardian died"),
            Self::GivenUp(why) => out.write_str(why),
            Self::WorkEnded => out.write_str("the work has ended"),
        }
    }
}
