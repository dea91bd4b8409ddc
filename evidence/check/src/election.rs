//! *Election*: candidates, one slot and the network, in all orders. The values are `ielections::protocol`, and the
//! conditions of the storage are `vvm_storage::decide`. Engine, deadman, network and work are modelled around them.

mod cells;
mod event;
mod observer;
mod on_cells;
mod process;
mod rebase;
mod scenarios;
mod settings;
mod world;

use crate::{
    Args,
    assumption::Assumption,
    notes::Notes,
    search::{self, Limits, Model},
};
use event::{Event, What};
use scenarios::Scenario;
use settings::Settings;
use std::collections::BTreeSet;
use world::World;

impl Model for World {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        self.possible()
    }

    fn happen(&mut self, event: Event, notes: &mut Notes) {
        self.occur(event, notes);
    }

    fn rebase(&mut self) {
        self.rename();
    }

    fn recovers(self) -> Result<(), String> {
        let leads = self.has_a_leader_when_healed();
        if leads { Ok(()) } else { Err("no leader within 3 TTL after the faults".into()) }
    }
}

const ASSUMPTIONS: [Assumption; 7] = [
    Assumption::Clocks,
    Assumption::Suspend,
    Assumption::Deadman,
    Assumption::Incarnations,
    Assumption::Conditions,
    Assumption::Record,
    Assumption::HandedBack,
];

/// Searches all scenarios. Without an argument that changes what is searched, the edge, the assumptions and the
/// rebasing are shown, too.
pub(crate) fn check(args: &Args) -> bool {
    let mut holds = search_all(args, &args.limits(), &scenarios::ALL, &scenarios::REACHED);
    if args.is_whole() {
        holds &= shows_the_edge();
        holds &= shows_what_each_assumption_is_for();
        holds &= rebasing_changes_nothing(args);
    }
    holds
}

/// Searches the scenarios on cells.
pub(crate) fn check_cells(args: &Args) -> bool {
    // Each call on cells costs more.
    let limits = Limits { sample: args.sample * 10, ..args.limits() };
    search_all(args, &limits, &scenarios::CELLS, &scenarios::REACHED_ON_CELLS)
}

fn search_all(args: &Args, limits: &Limits, all: &[Scenario], reached: &[&'static str]) -> bool {
    let scenarios = all.iter().filter(|scenario| args.is_wanted(scenario.name)).cloned();
    let scenarios: Vec<Scenario> = scenarios
        .map(|scenario| {
            let (faults, depth) = (scenario.faults, scenario.depth);
            scenario.within(args.faults.unwrap_or(faults), args.depth.unwrap_or(depth))
        })
        .collect();
    let settings = Settings { kill_share: args.kill_share, dropped: args.drop, only: args.only.clone() };
    let faults = scenarios.iter().flat_map(Scenario::faults).map(What::told);
    let reached: BTreeSet<_> = match args.scenario {
        Some(_) => BTreeSet::new(),
        None => reached.iter().copied().chain(faults).collect(),
    };
    let parts: Vec<_> = scenarios.iter().map(|scenario| scenario.part(&settings)).collect();
    parts.is_empty() || search::search_all(&parts, limits, &reached)
}

/// Searches one scenario with few faults, and returns the length of the story of a violation.
fn length_of(settings: &Settings, scenario: &str) -> Option<usize> {
    let scenario = scenarios::ALL.into_iter().find(|known| known.name == scenario)?.within(1, 24);
    search::length_of(&scenario.part(settings))
}

/// The kill on the slowest clock and the take-over on the fastest meet at 9/11 of a TTL, which is 818.2
/// thousandths.
fn shows_the_edge() -> bool {
    let length =
        |share| length_of(&Settings { kill_share: Some(share), ..Settings::default() }, scenarios::NETWORKED);
    let lengths = [800, 817, 818, 819, 830].map(|share| (share, length(share)));
    for (share, length) in lengths {
        let result = length.map_or("holds".into(), |length| format!("broken after {length} events"));
        println!("killed at {share} thousandths of a TTL: {result}");
    }
    lengths.iter().all(|(share, length)| length.is_some() == (*share * 11 > 9_000))
}

fn shows_what_each_assumption_is_for() -> bool {
    crate::shows_what_each_assumption_is_for(&ASSUMPTIONS, "I1", |assumption| {
        let settings = Settings { dropped: Some(assumption), only: Some("I1".into()), ..Settings::default() };
        let scenario = match assumption {
            Assumption::Record => scenarios::FOREIGN,
            _ => scenarios::NETWORKED,
        };
        length_of(&settings, scenario)
    })
}

fn rebasing_changes_nothing(args: &Args) -> bool {
    let mut random = fastrand::Rng::with_seed(args.seed);
    let settings = Settings::default();
    for (number, scenario) in scenarios::ALL.iter().cycle().enumerate().take(args.paths) {
        // More faults than a search affords.
        let part = scenario.clone().within(6, 60).part(&settings);
        if let Err(path) = search::replay(&part.began, part.depth, &mut random) {
            println!("path {number} of {} differs without rebasing:", part.name);
            search::story(&part.began, &path).iter().for_each(|line| println!("  {line}"));
            return false;
        }
    }
    println!("{} random paths are the same with and without rebasing, seed {}", args.paths, args.seed);
    true
}
