//! The faults of a run, and how often each took effect: a fault that never happened shows nothing.

use fastrand::Rng;
use std::{fmt, ops::AddAssign, time::Duration};
use vvm_clock::Instant;

/// From here on there are no faults, and no service ends by itself.
pub(crate) const FAULTS_END: Instant = Instant::from_nanos(300_000_000_000);

/// The time between two faults of a process after the last fault.
pub(crate) const NO_FAULT: Duration = Duration::from_secs(3600);

/// How often each fault happens. Every seed has its own rates.
#[derive(Clone, Default, Debug)]
pub(crate) struct FaultRates {
    /// Out of a thousand calls: refused, and never applied.
    pub(crate) not_applied: u32,
    /// Out of a thousand calls: the request never arrives.
    pub(crate) request_lost: u32,
    /// Out of a thousand calls: applied, and the answer never arrives.
    pub(crate) answer_lost: u32,
    /// Out of a thousand calls: answered as unknown, applied or not, now or later.
    pub(crate) unknown: u32,
    /// Out of a thousand writes: the network delivers the request a second time.
    pub(crate) duplicated: u32,
    /// Out of a thousand calls: the request travels for up to two TTLs.
    pub(crate) delayed: u32,
    /// Out of a thousand scans: the answer is from the past.
    pub(crate) stale: u32,
    /// The longest usual delay of a message.
    pub(crate) latency: Duration,
    /// Mean time between two faults of one process.
    pub(crate) process_fault_every: Duration,
}

impl FaultRates {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mut often = |most: u32| if rng.bool() { rng.u32(0..most) } else { 0 };
        Self {
            not_applied: often(150),
            request_lost: often(100),
            answer_lost: often(150),
            unknown: often(150),
            duplicated: often(100),
            delayed: often(100),
            stale: often(300),
            latency: Duration::from_millis(u64::from(often(800)) + 1),
            process_fault_every: Duration::from_secs(rng.u64(15..90)),
        }
    }

    pub(crate) fn none() -> Self {
        let process_fault_every = NO_FAULT;
        Self { latency: Duration::from_millis(5), process_fault_every, ..Self::default() }
    }
}

#[derive(Debug)]
pub(crate) enum Fate {
    Answered,
    NotApplied,
    RequestLost,
    AnswerLost,
    Unknown(Landing),
}

/// When a write lands whose sender was answered at once that its outcome is unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Landing {
    Never,
    BeforeTheAnswer,
    After(Duration),
}

#[derive(Debug)]
pub(crate) struct Journey {
    pub(crate) fate: Fate,
    pub(crate) there: Duration,
    pub(crate) back: Duration,
    /// How long after the request a second copy of it arrives, if there is one.
    pub(crate) again: Option<Duration>,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident: $text:literal,)*) => {
        /// How often each fault took effect.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Counts { $($(#[$doc])* pub(crate) $name: u64,)* }

        impl AddAssign for Counts {
            fn add_assign(&mut self, other: Self) { $(self.$name += other.$name;)* }
        }

        impl Counts {
            pub(crate) fn missing(&self) -> Vec<&'static str> {
                let mut missing = Vec::new();
                $(if self.$name == 0 { missing.push($text); })*
                missing
            }
        }

        impl fmt::Display for Counts {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(writeln!(out, "{:>12}  {}", self.$name, $text)?;)*
                Ok(())
            }
        }
    };
}

counts! {
    not_applied: "storage errors: not applied",
    request_lost: "requests lost",
    answer_lost: "answers lost after the write was applied",
    unknown_applied: "unknown outcomes, applied",
    unknown_not_applied: "unknown outcomes, not applied",
    unknown_then_applied: "unknown outcomes, applied after the answer",
    refused_again: "second copies of a request refused",
    late: "writes applied later than their TTL after the send",
    landed_dead: "writes applied after their process was dead",
    stale: "scans answered from the past",
    crashes: "processes crashed",
    crashes_leading: "leaders crashed",
    pauses: "processes paused",
    pauses_in_poll: "processes paused after they had read the clock",
    broken_clocks: "processes on a clock that stops, jumps or is more than 10 % wrong",
    restores: "storages that went back to an older state",
    kills: "processes ended by their deadman",
    stops: "clean shutdowns asked for",
    refusals: "services that did not stop in time",
    panics: "services that panicked",
    problems: "problems that ended a VVM by itself",
    starts: "times that work began",
    together: "times that work began beside other work of the process",
    tightened: "deadlines that a loss brought forward",
    batches: "batches of documents applied",
    batches_deposed: "writes of documents refused because the leader is deposed",
    batches_unknown: "writes of documents given up with an unknown outcome",
    batches_conflicting: "writes of documents refused by a condition",
    hints: "hints to look at once",
    relied_on_hints: "reads after which a process relied on hints that follow no release",
    operator_pauses: "pauses that an operator was told are in force",
    named: "successors named",
    named_another: "leaders that named another successor later, so that one was withdrawn",
    claims_by_right: "records taken over by a successor before their TTL",
    losses_of_support: "leaders lost because neither successor nor storage answered",
    stops_allowed: "leaders and standbys that asked before they stopped",
    takeovers: "records taken over from a dead leader",
    releases: "records released",
}
