//! The protocol in all orders of events, within a bound. The values are the shipped ones (`ielections::protocol`),
//! and so are the conditions of the storage (`vvm_storage::decide`). Engine, deadman, network and work are modelled
//! around them.
//!
//! `check` searches each scenario breadth first, and prints a broken invariant as a shortest story. It fails, too,
//! if a state does not recover, if something that has to be reached was not, if the edge of the kill deadline or
//! the use of an assumption does not show, and if rebasing changes what happens.
#![forbid(unsafe_code)]

mod event;
mod observer;
mod process;
mod rebase;
mod scenarios;
mod search;
mod settings;
mod world;

use clap::{Parser, ValueEnum};
use event::What;
use scenarios::Scenario;
use search::{Found, Limits};
use settings::{Assumption, Settings};
use std::{collections::BTreeSet, panic, process::ExitCode, thread};
use vvm_clock::SystemClock;

/// Searches the protocol in all orders of events.
#[derive(Debug, Parser)]
struct Args {
    /// Only the scenarios whose names contain this, and nothing else.
    #[arg(long)]
    scenario: Option<String>,
    /// The most faults in a story, instead of each scenario's own number.
    #[arg(long)]
    faults: Option<u8>,
    /// The most events in a story, instead of each scenario's own number.
    #[arg(long)]
    depth: Option<usize>,
    /// The most states of a scenario. A search that meets more is incomplete, and fails.
    #[arg(long, default_value_t = 20_000_000)]
    states: usize,
    /// One of so many states is healed, and has to recover.
    #[arg(long, default_value_t = 20)]
    sample: u128,
    /// How many random paths are compared with and without rebasing.
    #[arg(long, default_value_t = 10_000)]
    paths: usize,
    /// The seed of the random paths.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Kills at so many thousandths of a TTL instead of when it is shipped.
    #[arg(long)]
    kill_share: Option<u64>,
    /// Drops an assumption, and prints why it is needed.
    #[arg(long)]
    drop: Option<Assumption>,
    /// Observes only this invariant: I1, I2, I3, I7 or progress.
    #[arg(long)]
    only: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let named = args.scenario.as_deref().unwrap_or_default();
    let scenarios = scenarios::ALL.into_iter().filter(|scenario| scenario.name.contains(named));
    let scenarios: Vec<Scenario> = scenarios
        .map(|scenario| {
            let (faults, depth) = (scenario.faults, scenario.depth);
            scenario.within(args.faults.unwrap_or(faults), args.depth.unwrap_or(depth))
        })
        .collect();
    let settings = Settings { kill_share: args.kill_share, dropped: args.drop, only: args.only.clone() };
    let mut holds = search_all(&args, &scenarios, &settings);
    if args.scenario.is_none() && args.kill_share.is_none() && args.drop.is_none() && args.only.is_none() {
        holds &= shows_the_edge();
        holds &= shows_what_each_assumption_is_for();
        holds &= rebasing_changes_nothing(&args);
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Searches the scenarios side by side.
fn search_all(args: &Args, scenarios: &[Scenario], settings: &Settings) -> bool {
    let search = |scenario: &Scenario| {
        let began = SystemClock::read();
        let limits = Limits { depth: scenario.depth, states: args.states, sample: args.sample };
        let found = search::search(&scenario.world(settings), &limits);
        let incomplete = if found.is_complete { "" } else { ", NOT ALL OF THEM" };
        let took = SystemClock::read().since(began).as_secs_f64();
        println!(
            "{}, {} faults, {} events: {} states{incomplete}, {} steps, {} states recovered, {took:.1} s",
            scenario.name, scenario.faults, found.depth, found.states, found.steps, found.recovered,
        );
        found
    };
    let results: Vec<Found> = thread::scope(|scope| {
        let begun: Vec<_> = scenarios.iter().map(|scenario| scope.spawn(move || search(scenario))).collect();
        let joined = begun.into_iter().map(|search| search.join());
        joined.map(|found| found.unwrap_or_else(|panic| panic::resume_unwind(panic))).collect()
    });
    for (scenario, found) in scenarios.iter().zip(&results) {
        if let Some(violation) = &found.notes.violation {
            println!("{}: {violation}, after {} events:", scenario.name, found.path.len());
            search::story(&scenario.world(settings), &found.path)
                .iter()
                .for_each(|line| println!("  {line}"));
        }
    }
    let is_held = !results.is_empty()
        && results.iter().all(|found| found.notes.violation.is_none() && found.is_complete);
    let reached: BTreeSet<&str> =
        results.iter().flat_map(|found| found.notes.reached.iter().copied()).collect();
    let faults = scenarios.iter().flat_map(Scenario::faults).map(What::told);
    let has_to_be = scenarios::REACHED.into_iter().chain(faults);
    let missing: BTreeSet<&str> = has_to_be.filter(|what| !reached.contains(what)).collect();
    if args.scenario.is_some() {
        return is_held;
    }
    if is_held && !missing.is_empty() {
        println!(
            "not reached, so nothing is shown about it: {}",
            missing.iter().copied().collect::<Vec<_>>().join("; ")
        );
    }
    is_held && missing.is_empty()
}

/// Searches one scenario with few faults, and returns the length of the story of a violation.
fn length_of(settings: &Settings, scenario: &str) -> Option<usize> {
    let scenario = scenarios::ALL.into_iter().find(|known| known.name == scenario)?.within(1, 24);
    let limits = Limits { depth: scenario.depth, states: usize::MAX, sample: 0 };
    let found = search::search(&scenario.world(settings), &limits);
    found.notes.violation.map(|_| found.path.len())
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
    let mut all_shown = true;
    for assumption in Assumption::value_variants() {
        let settings =
            Settings { dropped: Some(*assumption), only: Some("I1".into()), ..Settings::default() };
        let scenario = match assumption {
            Assumption::Record => scenarios::FOREIGN,
            _ => scenarios::NETWORKED,
        };
        let length = length_of(&settings, scenario);
        all_shown &= length.is_some();
        let result = length.map_or("HOLDS".into(), |length| format!("broken after {length} events"));
        println!("I1 without the assumption {assumption:?}: {result}");
    }
    all_shown
}

fn rebasing_changes_nothing(args: &Args) -> bool {
    let mut random = fastrand::Rng::with_seed(args.seed);
    let settings = Settings::default();
    for (number, scenario) in scenarios::ALL.iter().cycle().enumerate().take(args.paths) {
        // More faults than a search affords.
        let scenario = scenario.clone().within(6, 60);
        let world = scenario.world(&settings);
        if let Err(path) = search::replay(&world, scenario.depth, &mut random) {
            println!("path {number} of {} differs without rebasing:", scenario.name);
            search::story(&world, &path).iter().for_each(|line| println!("  {line}"));
            return false;
        }
    }
    println!("{} random paths are the same with and without rebasing, seed {}", args.paths, args.seed);
    true
}
