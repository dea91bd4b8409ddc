//! What is searched: candidates, their clocks, and which faults may happen. And what has to be reached, or nothing
//! is shown about it.

use crate::{
    process::Process,
    rebase::NOW,
    world::{Assumption, Draws, Fault, Settings, World},
};
use ielections::Ttl;
use std::time::Duration;

/// Every share of it is whole, also on clocks that run at 9/10 and 11/10.
const TTL: Duration = Duration::from_millis(9_900);

#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Tenths of a second that each candidate's clock counts in a second.
    rates: &'static [u64],
    ttls: &'static [Duration],
    /// What every draw is: the latest instant of a pause or renewal, or half of the span earlier.
    draw: u64,
    /// The longest story, in events.
    pub(crate) depth: usize,
    /// How many faults there may be together.
    pub(crate) faults: u8,
    left: &'static [(Fault, u8)],
}

/// The scenario whose kill deadlines are moved.
pub(crate) const NETWORKED: &str = "two candidates";
pub(crate) const FOREIGN: &str = "records changed by another program";

const NETWORK: &[(Fault, u8)] =
    &[(Fault::Slow, 2), (Fault::Late, 1), (Fault::Crash, 1), (Fault::Pause, 1), (Fault::Cut, 1)];

pub(crate) const ALL: [Scenario; 8] = [
    Scenario {
        name: NETWORKED,
        rates: &[9, 11],
        ttls: &[TTL, TTL],
        draw: 0,
        depth: 26,
        faults: 2,
        left: NETWORK,
    },
    Scenario {
        name: "equal clocks",
        rates: &[10, 10],
        ttls: &[TTL, TTL],
        draw: 1 << 63,
        depth: 24,
        faults: 2,
        left: NETWORK,
    },
    Scenario {
        name: "a longer TTL on the slow clock",
        rates: &[9, 11],
        ttls: &[TTL, TTL.checked_div(2).unwrap()],
        draw: 0,
        depth: 24,
        faults: 1,
        left: NETWORK,
    },
    Scenario {
        name: "a shorter TTL on the slow clock",
        rates: &[9, 11],
        ttls: &[TTL.checked_div(2).unwrap(), TTL],
        draw: 1 << 63,
        depth: 24,
        faults: 1,
        left: NETWORK,
    },
    Scenario {
        name: "answers that are false or doubled",
        rates: &[9, 11],
        ttls: &[TTL, TTL],
        draw: 0,
        depth: 24,
        faults: 2,
        left: &[
            (Fault::Slow, 1),
            (Fault::Late, 1),
            (Fault::Twice, 1),
            (Fault::NotApplied, 1),
            (Fault::Broken, 1),
            (Fault::Replaced, 1),
        ],
    },
    Scenario {
        name: "releases",
        rates: &[9, 11],
        ttls: &[TTL, TTL],
        draw: 0,
        depth: 20,
        faults: 2,
        left: &[(Fault::Release, 2), (Fault::Slow, 2), (Fault::Late, 1), (Fault::Twice, 1), (Fault::Cut, 1)],
    },
    Scenario {
        name: FOREIGN,
        rates: &[9, 11],
        ttls: &[TTL, TTL],
        draw: 0,
        depth: 20,
        faults: 2,
        left: &[(Fault::Deleted, 1), (Fault::Vacated, 1), (Fault::Slow, 1), (Fault::Late, 1)],
    },
    Scenario {
        name: "three candidates",
        rates: &[9, 10, 11],
        ttls: &[TTL, TTL, TTL],
        draw: 0,
        depth: 20,
        faults: 1,
        left: NETWORK,
    },
];

/// What the values and the faults have to reach in some scenario, besides each fault.
pub(crate) const REACHED: [&str; 30] = [
    "a kill while working",
    "a late write that applies",
    "a release after a take-over",
    "a take-over after expiry",
    "campaign: Failed",
    "campaign: Insert",
    "campaign: Read",
    "campaign: Renew",
    "campaign: Scan",
    "campaign: Sleep",
    "campaign: TakeOver",
    "campaign: Won",
    "lease: Confirmed",
    "lease: Over",
    "lease: ReadBack",
    "lease: Sleep",
    "lease: Swap",
    "loss: EpochWentBack",
    "loss: Stolen",
    "loss: StorageReplaced",
    "loss: StorageUnreachable",
    "loss: Suspended",
    "loss: Vanished",
    "release: AlreadyGone",
    "release: Delete",
    "release: LeftToExpire",
    "release: Released",
    "release: Sleep",
    "a kill after the work",
    "a second leadership",
];

impl Scenario {
    /// The same with other bounds.
    pub(crate) fn within(self, faults: u8, depth: usize) -> Self {
        Self { faults, depth, ..self }
    }

    pub(crate) fn world(&self, settings: &Settings) -> World {
        let mut left = [0; Fault::ALL.len()];
        for (fault, times) in self.left {
            left[*fault as usize] = *times;
        }
        let rate = |rate: u64| match (settings.drops(Assumption::Clocks), rate) {
            (true, 9) => 8,
            (true, 11) => 12,
            _ => rate,
        };
        let ttls = self.ttls.iter().filter_map(|ttl| Ttl::new(*ttl).ok());
        let processes = ["A", "B", "C"].into_iter().zip(self.rates).zip(ttls);
        let processes = processes.map(|((name, tenths), ttl)| Process::new(name, rate(*tenths), ttl, NOW));
        World::new(processes.collect(), left, self.faults, Draws::new(self.draw, settings))
    }
}
