//! *Election*: candidates, one slot and the network, in all orders. The values are `ielections::protocol`, and the
//! conditions of the storage are `vvm_storage::decide`. Engine, deadman, network and work are modelled around them.

mod cells;
mod event;
mod message;
mod names;
mod observer;
mod on_cells;
mod on_servers;
mod process;
mod rebase;
mod scenarios;
mod servers;
mod settings;
mod succession;
mod support;
mod world;

use crate::{
    Args, Assumption, Check,
    search::{self, Model, Notes, SAMPLE},
};
use event::{Event, What};
use scenarios::Scenario;
use settings::Settings;
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
        if self.around.succeeds {
            self.a_successor_is_prompt()?;
        }
        let leads = self.has_a_leader_when_healed();
        if leads { Ok(()) } else { Err("no leader within 3 TTL after the faults".into()) }
    }
}

pub(crate) fn check(args: &Args) -> bool {
    let mut holds = search_all(args, SAMPLE, &scenarios::ALL, &scenarios::REACHED);
    if args.is_whole() {
        holds &= shows_the_edge(&scenarios::ALL[0].clone().within(1, 24), &[800, 817, 818, 819, 830]);
        holds &= shows_what_each_assumption_is_for();
        holds &= rebasing_changes_nothing(args, &scenarios::ALL);
    }
    holds
}

pub(crate) fn check_cells(args: &Args) -> bool {
    // Each call on cells costs more.
    search_all(args, SAMPLE * 10, &scenarios::CELLS, &scenarios::REACHED_ON_CELLS)
}

fn search_all(args: &Args, sample: u128, all: &[Scenario], reached: &[&'static str]) -> bool {
    let settings = Settings { kill_share: args.kill_share, dropped: args.drop, only: None };
    let parts = all.iter().map(|scenario| {
        let (faults, depth) = (args.faults.unwrap_or(scenario.faults), args.depth.unwrap_or(scenario.depth));
        scenario.clone().within(faults, depth).part(&settings)
    });
    let faults = all.iter().flat_map(Scenario::faults).map(What::told);
    args.search(parts, sample, reached.iter().copied().chain(faults))
}

/// Searches the scenarios on servers of which some are promoted. What the model takes for granted is shown, too.
pub(crate) fn check_adoption(args: &Args) -> bool {
    let mut holds = search_all(args, SAMPLE, &scenarios::SERVERS, &scenarios::REACHED_ON_SERVERS);
    if args.is_whole() {
        holds &= shows_the_edge(&scenarios::SERVERS[2], &[817, 819]);
        holds &= crate::shows_what_each_assumption_is_for(Check::Adoption, "I1 or I2", |assumption| {
            let invariant = if assumption == Assumption::Raised { "I2" } else { "I1" };
            length_of(&without(assumption, invariant), &scenarios::SERVERS[1])
        });
        holds &= rebasing_changes_nothing(args, &scenarios::SERVERS);
    }
    holds
}

/// Searches the scenarios with successors. The edge of the support's kill deadline is shown, too.
pub(crate) fn check_succession(args: &Args) -> bool {
    let all = &scenarios::SUCCESSIONS;
    let mut holds = search_all(args, SAMPLE, all, &scenarios::REACHED_WITH_SUCCESSORS);
    if args.is_whole() {
        holds &= shows_the_edge(&all[0].clone().within(1, 14), &[800, 817, 818, 819, 830]);
        holds &= rebasing_changes_nothing(args, all);
    }
    holds
}

/// Searches one scenario with few faults, and returns the length of the story of a violation.
fn length_of(settings: &Settings, scenario: &Scenario) -> Option<usize> {
    search::length_of(&scenario.clone().within(1, 24).part(settings))
}

fn without(assumption: Assumption, invariant: &str) -> Settings {
    Settings { dropped: Some(assumption), only: Some(invariant.into()), ..Settings::default() }
}

/// The kill on the slowest clock and the take-over on the fastest meet at 9/11 of a TTL, which is 818.2 thousandths.
fn shows_the_edge(scenario: &Scenario, shares: &[u64]) -> bool {
    let mut is_there = true;
    for share in shares {
        let settings = Settings { kill_share: Some(*share), ..Settings::default() };
        let length = search::length_of(&scenario.part(&settings));
        let result = length.map_or("holds".into(), |length| format!("broken after {length} events"));
        println!("{}, killed at {share} thousandths: {result}", scenario.name);
        is_there &= length.is_some() == (*share * 11 > 9_000);
    }
    is_there
}

fn shows_what_each_assumption_is_for() -> bool {
    crate::shows_what_each_assumption_is_for(Check::Election, "I1", |assumption| {
        let is_of_others = |scenario: &&Scenario| scenario.name == scenarios::FOREIGN;
        let foreign = scenarios::ALL.iter().find(is_of_others).filter(|_| assumption == Assumption::Record);
        length_of(&without(assumption, "I1"), foreign.unwrap_or(&scenarios::ALL[0]))
    })
}

fn rebasing_changes_nothing(args: &Args, scenarios: &[Scenario]) -> bool {
    let mut random = fastrand::Rng::with_seed(0);
    let settings = Settings::default();
    for (number, scenario) in scenarios.iter().cycle().enumerate().take(args.paths) {
        // More faults than a search affords.
        let part = scenario.clone().within(6, 60).part(&settings);
        if let Err(path) = search::replay(&part.began, part.depth, &mut random) {
            println!("path {number} of {} differs without rebasing:", part.name);
            search::story(&part.began, &path).iter().for_each(|line| println!("  {line}"));
            return false;
        }
    }
    println!("{} random paths are the same with and without rebasing", args.paths);
    true
}
