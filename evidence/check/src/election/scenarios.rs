//! What is searched: candidates, their clocks, possible faults. And what has to be reached, or nothing is shown.

use super::{
    cells::CellWorld,
    event::What::{self, *},
    names::NOW,
    process::Process,
    servers::{self, Servers},
    settings::{Settings, Surroundings},
    world::World,
};
use crate::{Assumption, search::Part};
use ielections::Ttl;
use std::{sync::Arc, time::Duration};

#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Tenths of a second that the clock of each candidate counts in a second, and milliseconds of its TTL.
    candidates: &'static [(u64, u64)],
    /// Whether each draw is half of what it may be. Otherwise it is nothing.
    draws: bool,
    pub(crate) faults: u8,
    /// The longest story, in events.
    pub(crate) depth: usize,
    left: &'static [(What, u8)],
    storage: Storage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Storage {
    Slot,
    /// The same, with successors. A story begins when one is named, or before any candidate leads.
    WithSuccessor {
        is_named: bool,
    },
    Cells,
    Servers,
}

const fn scenario(
    name: &'static str,
    candidates: &'static [(u64, u64)],
    draws: bool,
    (faults, depth): (u8, usize),
    left: &'static [(What, u8)],
) -> Scenario {
    Scenario { name, candidates, draws, faults, depth, left, storage: Storage::Slot }
}

/// Every share of this TTL is whole, also on clocks that run at 9/10 and 11/10. So is every share of its half.
const TTL: u64 = 9_900;
const APART: &[(u64, u64)] = &[(9, TTL), (11, TTL)];
const NETWORK: &[(What, u8)] = &[(Slow, 2), (Late, 1), (Crash, 1), (Pause, 1), (Cut, 1)];
const FALSE: &[(What, u8)] = &[(Slow, 1), (Late, 1), (Twice, 1), (NotApplied, 1), (Broken, 1), (Replaced, 1)];
const RELEASES: &[(What, u8)] = &[(Release, 2), (Slow, 2), (Late, 1), (Twice, 1), (Cut, 1)];
const OTHERS: &[(What, u8)] = &[(Deleted, 1), (Vacated, 1), (Overwritten, 1), (Slow, 1), (Late, 1)];

const NETWORKED: &str = "two candidates";
pub(crate) const FOREIGN: &str = "records changed by another program";

/// The kill deadlines of the first are moved.
pub(crate) const ALL: [Scenario; 8] = [
    scenario(NETWORKED, APART, false, (2, 26), NETWORK),
    scenario("equal clocks", &[(10, TTL), (10, TTL)], true, (2, 24), NETWORK),
    scenario("a longer TTL on the slow clock", &[(9, TTL), (11, TTL / 2)], false, (1, 24), NETWORK),
    scenario("a shorter TTL on the slow clock", &[(9, TTL / 2), (11, TTL)], true, (1, 24), NETWORK),
    scenario("answers that are false or doubled", APART, false, (2, 24), FALSE),
    scenario("releases", APART, false, (2, 20), RELEASES),
    scenario(FOREIGN, APART, false, (2, 20), OTHERS),
    scenario("three candidates", &[(9, TTL), (10, TTL), (11, TTL)], false, (1, 20), NETWORK),
];

#[rustfmt::skip]
pub(crate) const REACHED: [&str; 28] = [
    "a kill while working", "a late write that applies", "a take-over after expiry", "a claim of a vacant slot",
    "a release after a take-over", "a scan", "a claim", "a read-back of a candidate", "a renewal of a candidate",
    "a campaign that fails", "a renewal of a leader", "a read-back of a leader", "a confirmed renewal",
    "a leader that waits", "an answer after a loss", "a release", "a release that waits",
    "a release by a candidate",
    "Stolen", "Vanished", "EpochWentBack", "StorageReplaced", "StorageUnreachable", "Suspended",
    "Released", "AlreadyGone", "LeftToExpire", "a state that recovers",
];

pub(super) const CELLS: [Scenario; 3] = [
    Scenario {
        storage: Storage::Cells,
        ..scenario("cells that are deleted", APART, false, (2, 16), TWICE_DELETED)
    },
    Scenario {
        storage: Storage::Cells,
        ..scenario("cells that another program writes", APART, false, (2, 14), CELLS_OF_OTHERS)
    },
    Scenario {
        storage: Storage::Cells,
        ..scenario("cells, and late writes", APART, false, (2, 12), CELL_WRITES)
    },
];
const CELLS_OF_OTHERS: &[(What, u8)] = &[(Overwritten, 1), (Garbled, 1), (Deleted, 1), (Late, 1)];
const TWICE_DELETED: &[(What, u8)] = &[(Deleted, 2), (Pause, 1)];
const CELL_WRITES: &[(What, u8)] =
    &[(Deleted, 1), (Slow, 1), (Late, 1), (Twice, 1), (Broken, 1), (Crash, 1), (Release, 1)];

pub(super) const REACHED_ON_CELLS: [&str; 11] = [
    "a cell that can't be read",
    "a placeholder",
    "a placeholder after a placeholder",
    "a claim over a placeholder",
    "a claim of a vacant cell",
    "a cell is renewed",
    "a cell is released",
    "a late write of a cell that applies",
    "a late write of a cell that is refused",
    "Stolen",
    "a state that recovers",
];

pub(super) const SERVERS: [Scenario; 4] = [
    on_servers("fail-overs", APART, (0, 17), FAIL_OVERS),
    on_servers("a fail-over, and late messages", APART, (2, 15), FAIL_OVER),
    on_servers("a fail-over while a leader is stopped", APART, (1, 17), WHILE_STOPPED),
    on_servers("fail-overs, and a shorter TTL on the fast clock", SHORTER, (0, 15), FAIL_OVERS),
];
const SHORTER: &[(u64, u64)] = &[(9, TTL), (11, TTL / 2)];
const FAIL_OVERS: &[(What, u8)] = &[(Promotes, 2), (Replicates, 2), (Release, 1)];
const WHILE_STOPPED: &[(What, u8)] = &[(Promotes, 1), (Replicates, 1), (Pause, 1)];
const FAIL_OVER: &[(What, u8)] =
    &[(Promotes, 1), (Replicates, 1), (Slow, 1), (Late, 1), (Broken, 1), (Crash, 1)];

const fn on_servers(
    name: &'static str,
    candidates: &'static [(u64, u64)],
    bounds: (u8, usize),
    left: &'static [(What, u8)],
) -> Scenario {
    Scenario { storage: Storage::Servers, ..scenario(name, candidates, false, bounds, left) }
}

pub(super) const REACHED_ON_SERVERS: [&str; 16] = [
    "a fail-over that lost nothing",
    "a fail-over that lost a renewal",
    "a fail-over that lost a claim",
    "a fail-over that lost a release",
    "two promotions of one timeline",
    "an adoption",
    "an adoption of slots without a row",
    "a slot without a row is adopted",
    "a late write to a deposed primary",
    "a late write that applies",
    "a claim after an adoption",
    "a leader after a fail-over",
    "StorageReplaced",
    "Stolen",
    "a kill while working",
    "a state that recovers",
];

/// The scenarios with successors. The kill deadline of the first is moved.
pub(super) const SUCCESSIONS: [Scenario; 8] = [
    with_successor("a successor", APART, true, (2, 13), PARTED),
    with_successor("a successor, and late datagrams", APART, true, (2, 20), DATAGRAMS),
    with_successor("a successor, and an old acknowledgement", APART, true, (3, 16), ACKNOWLEDGEMENTS),
    with_successor("a successor, and late writes", APART, true, (2, 13), WRITES),
    with_successor("a successor that is named", APART, false, (2, 20), NAMING),
    with_successor("a successor on the slow clock", &[(11, TTL), (9, TTL)], true, (2, 13), UNDISTURBED),
    with_successor("a successor that stops", APART, true, (1, 24), STOPPING),
    with_successor(
        "a successor and a third candidate",
        &[(9, TTL), (11, TTL), (10, TTL)],
        true,
        (1, 15),
        PARTED,
    ),
];
const PARTED: &[(What, u8)] =
    &[(Pause, 1), (Cut, 1), (Crash, 1), (Unlink, 1), (Slow, 1), (Late, 1), (Release, 1)];
const DATAGRAMS: &[(What, u8)] = &[
    (PingLost, 1),
    (PingLate, 1),
    (PingTwice, 1),
    (AnswerLost, 1),
    (AnswerLate, 1),
    (AnswerTwice, 1),
    (Pause, 1),
    (Cut, 1),
    (Unlink, 1),
];
const WRITES: &[(What, u8)] = &[
    (Slow, 2),
    (Late, 1),
    (Twice, 1),
    (NotApplied, 1),
    (Broken, 1),
    (Unlink, 1),
    (Pause, 1),
    (Leaves, 1),
    (Release, 1),
];
const NAMING: &[(What, u8)] =
    &[(TightensLate, 1), (PingLost, 1), (PingLate, 1), (AnswerLate, 1), (Pause, 1), (Crash, 1), (Unlink, 1)];
const STOPPING: &[(What, u8)] = &[(Leaves, 1), (PingLost, 1), (AnswerLate, 1), (Unlink, 1)];
const ACKNOWLEDGEMENTS: &[(What, u8)] = &[(AnswerTwice, 1), (PingLost, 1), (Pause, 1)];
const UNDISTURBED: &[(What, u8)] =
    &[(PingLost, 1), (PingLate, 1), (AnswerLost, 1), (AnswerLate, 1), (Unlink, 1), (Leaves, 1), (Release, 1)];

const fn with_successor(
    name: &'static str,
    candidates: &'static [(u64, u64)],
    is_named: bool,
    bounds: (u8, usize),
    left: &'static [(What, u8)],
) -> Scenario {
    Scenario {
        storage: Storage::WithSuccessor { is_named },
        ..scenario(name, candidates, false, bounds, left)
    }
}

pub(super) const REACHED_WITH_SUCCESSORS: [&str; 14] = [
    "a named successor",
    "a claim by right",
    "a leader by right",
    "a withdrawal that is confirmed",
    "a confirmation below the bound",
    "a deadline that is not tightened in time",
    "a loss of support",
    "a kill at the deadline of the support",
    "a stop after a withdrawal",
    "a standby that has left",
    "a late write that applies",
    "a read of a successor",
    "a take-over after expiry",
    "a state that recovers",
];

impl Scenario {
    pub(crate) fn within(self, faults: u8, depth: usize) -> Self {
        Self { faults, depth, ..self }
    }

    pub(crate) fn part(&self, settings: &Settings) -> Part<World> {
        let Self { name, faults, depth, .. } = *self;
        Part { name, faults, depth, began: self.world(settings) }
    }

    pub(crate) fn faults(&self) -> impl Iterator<Item = What> {
        self.left.iter().map(|(what, _)| *what)
    }

    fn world(&self, settings: &Settings) -> World {
        let (poll, wall) = match self.storage {
            Storage::Slot | Storage::WithSuccessor { .. } => (6, Duration::ZERO),
            Storage::Cells => (12, Duration::ZERO),
            Storage::Servers => (24, servers::WALL),
        };
        let mut around = Surroundings::new(settings, if self.draws { 1 << 63 } else { 0 }, poll, wall);
        around.succeeds = matches!(self.storage, Storage::WithSuccessor { .. });
        let disturbs = |what: What| {
            matches!(what, Slow | Late | Twice | NotApplied | Broken | Replaced | Pause | Cut | TightensLate)
        };
        around.is_undisturbed = !self.faults().any(disturbs);
        let around = Arc::new(around);
        let rate = |rate: u64| match (around.drops(Assumption::Clocks), rate) {
            (true, 9) => 8,
            (true, 11) => 12,
            _ => rate,
        };
        let candidates = ["A", "B", "C"].into_iter().zip(self.candidates);
        let processes = candidates.filter_map(|(name, (tenths, ttl))| {
            Some(Process::new(name, rate(*tenths), Ttl::new(Duration::from_millis(*ttl)).ok()?, NOW))
        });
        let mut world = World::new(processes.collect(), self.left.to_vec(), self.faults, around);
        match self.storage {
            Storage::Slot | Storage::WithSuccessor { is_named: false } => {}
            Storage::WithSuccessor { is_named: true } => world.name_a_successor(),
            Storage::Cells => world.cells = Some(CellWorld::settled(&world.around)),
            Storage::Servers => {
                let max_ttl = world.processes.iter().map(|process| process.ttl).max();
                world.servers = max_ttl.map(Servers::new);
            }
        }
        world
    }
}
