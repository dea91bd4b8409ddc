//! Shipped values in all orders of events, within a bound. [`election`], and beside it what it takes for granted: each
//! check shows what the others assume. `check` searches each scenario breadth first, and prints a broken invariant as a
//! shortest story. It fails, too, if a state does not recover, if something that has to be reached was not, if the edge
//! of the kill deadline or the use of an assumption does not show, and if rebasing changes what happens.
#![forbid(unsafe_code)]

mod containment;
mod election;
mod search;
mod warm;

use clap::{Parser, ValueEnum};
use search::{Model, Part};
use std::{cell::Cell, fs, process::ExitCode};
use vvm_clock::SystemClock;

/// Searches shipped values in all orders of events.
#[derive(Debug, Parser)]
struct Args {
    /// Only this check.
    #[arg(long)]
    only_check: Option<Check>,
    /// Only the scenarios whose names contain this, and nothing else.
    #[arg(long)]
    scenario: Option<String>,
    /// The most faults in a story, instead of each scenario's own number.
    #[arg(long)]
    faults: Option<u8>,
    /// The most events in a story, instead of each scenario's own number.
    #[arg(long)]
    depth: Option<usize>,
    /// How many random paths are compared with and without rebasing.
    #[arg(long, default_value_t = 10_000)]
    paths: usize,
    /// Kills at so many thousandths of a TTL, or of a support period, instead of when it is shipped.
    #[arg(long)]
    kill_share: Option<u64>,
    /// Drops an assumption, and prints why it is needed.
    #[arg(long)]
    drop: Option<Assumption>,
    #[arg(skip)]
    has_searched: Cell<bool>,
}

/// What is searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Check {
    /// Candidates, one slot and the network.
    Election,
    /// Candidates on cells, which another program deletes.
    Cells,
    /// Candidates on a database of which lagging servers are promoted.
    Adoption,
    /// Candidates of which a standby succeeds the leader.
    Succession,
    /// A warm app and its host.
    Warm,
    /// Guardian, host, keeper and command.
    Containment,
}

/// An assumption of `docs/contributing/architecture.md`, or a lemma that another check shows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ValueEnum)]
pub(crate) enum Assumption {
    /// Election: clocks advance within 10 % of true time.
    Clocks,
    /// Election: clocks count while the process is suspended.
    Suspend,
    /// Election: the deadman ends the process at its deadline.
    Deadman,
    /// Election: each attempt has an incarnation of its own.
    Incarnations,
    /// Election: the storage applies a write only if its condition holds.
    Conditions,
    /// Election: no other program changes the record.
    Record,
    /// Election: work has stopped before it is handed back.
    HandedBack,
    /// Adoption: a primary is stopped before another server is promoted.
    Stopped,
    /// Adoption: an adopted slot is held for the largest TTL.
    Waits,
    /// Adoption: the epoch of an adopted slot exceeds all that were given out.
    Raised,
    /// Adoption: a write lands only if the server has the history that it names.
    Compared,
    /// Containment: at the kill deadline, guardian or keeper runs.
    Acts,
    /// Containment: no process leaves the containment of its level.
    Contained,
    /// Containment: the command's own process gets its parent-death signal.
    ParentDeath,
    /// Warm: guardian and keeper enforce the deadline that they have confirmed.
    Confirmed,
    /// Warm: the keeper says that the tree is gone only if it is.
    Proof,
    /// Warm, with `--after-stop keep`: an app that says `stopped` has stopped its work.
    Word,
    /// Warm: a message counts only if the process that connected has sent it.
    Sender,
}

impl Assumption {
    pub(crate) fn check(self) -> Check {
        match self {
            Self::Clocks
            | Self::Suspend
            | Self::Deadman
            | Self::Incarnations
            | Self::Conditions
            | Self::Record
            | Self::HandedBack => Check::Election,
            Self::Stopped | Self::Waits | Self::Raised | Self::Compared => Check::Adoption,
            Self::Acts | Self::Contained | Self::ParentDeath => Check::Containment,
            Self::Confirmed | Self::Proof | Self::Word | Self::Sender => Check::Warm,
        }
    }
}

impl Args {
    /// Searches those parts that are asked for. If all are, all of `reached` has to be reached.
    fn search<M: Model>(
        &self,
        parts: impl IntoIterator<Item = Part<M>>,
        sample: u128,
        reached: impl Iterator<Item = &'static str>,
    ) -> bool {
        let wanted = self.scenario.as_deref().unwrap_or_default();
        let parts: Vec<_> = parts.into_iter().filter(|part| part.name.contains(wanted)).collect();
        let reached = reached.filter(|_| wanted.is_empty()).collect();
        self.has_searched.set(self.has_searched.get() || !parts.is_empty());
        parts.is_empty() || search::search_all(&parts, sample, &reached)
    }

    fn is_whole(&self) -> bool {
        self.scenario.is_none() && self.kill_share.is_none() && self.drop.is_none()
    }
}

fn main() -> ExitCode {
    if run(&Args::parse()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(args: &Args) -> bool {
    let mut holds = true;
    for check in Check::value_variants() {
        let is_left_out = args.only_check.is_some_and(|only| only != *check)
            || args.drop.is_some_and(|dropped| dropped.check() != *check);
        if is_left_out {
            continue;
        }
        let began = SystemClock::read();
        println!("{check:?}:");
        holds &= match check {
            Check::Election => election::check(args),
            Check::Cells => election::check_cells(args),
            Check::Adoption => election::check_adoption(args),
            Check::Succession => election::check_succession(args),
            Check::Warm => warm::check(args),
            Check::Containment => containment::check(args),
        };
        let took = SystemClock::read().since(began).as_secs_f64();
        println!("{check:?}: {took:.1} s, at most {} MB so far\n", most_memory());
    }
    if !args.has_searched.get() {
        println!("no scenario has such a name, so nothing is shown");
    }
    holds && args.has_searched.get()
}

/// Prints the length of the story that each dropped assumption of a check gives. Returns whether each gives one.
fn shows_what_each_assumption_is_for(
    check: Check,
    invariant: &str,
    length_without: impl Fn(Assumption) -> Option<usize>,
) -> bool {
    let mut all_shown = true;
    for assumption in Assumption::value_variants().iter().filter(|one| one.check() == check) {
        let length = length_without(*assumption);
        all_shown &= length.is_some();
        let result = length.map_or("HOLDS".into(), |length| format!("broken after {length} events"));
        println!("{invariant} without the assumption {assumption:?}: {result}");
    }
    all_shown
}

fn most_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or_default() / 1024
}

/// Short searches, which judge the mutants of protocol and rules (`cargo xtask mutants`).
#[cfg(test)]
mod tests {
    use super::*;

    fn holds(check: &str, scenario: &str, faults: u8, depth: usize, more: &[&str]) -> bool {
        let (faults, depth) = (faults.to_string(), depth.to_string());
        let bounds = ["check", "--only-check", check, "--scenario", scenario, "--faults", &faults, "--depth"];
        run(&Args::parse_from(bounds.iter().copied().chain([&*depth]).chain(more.iter().copied())))
    }

    #[test]
    fn scenario_that_does_not_exist_shows_nothing() {
        assert!(!holds("election", "a scenario that is gone", 1, 1, &[]));
    }

    #[test]
    fn two_candidates_never_lead_at_once() {
        assert!(holds("election", "two candidates", 1, 20, &[]));
    }

    #[test]
    fn false_and_doubled_answers_make_no_second_leader() {
        assert!(holds("election", "answers that are false or doubled", 1, 18, &[]));
    }

    #[test]
    fn release_meets_no_take_over() {
        assert!(holds("election", "releases", 1, 16, &[]));
    }

    #[test]
    fn records_that_others_change_make_no_second_leader() {
        assert!(holds("election", "records changed by another program", 1, 16, &[]));
    }

    #[test]
    fn late_kill_gives_a_story_of_two_leaders() {
        assert!(!holds("election", "two candidates", 1, 20, &["--kill-share", "819"]));
    }

    #[test]
    fn deleted_cell_makes_no_second_leader() {
        assert!(holds("cells", "cells that are deleted", 1, 12, &[]));
    }

    #[test]
    fn lagging_server_makes_no_second_leader() {
        assert!(holds("adoption", "a fail-over while a leader is stopped", 1, 14, &[]));
    }

    #[test]
    fn successor_makes_no_second_leader() {
        assert!(holds("succession", "late datagrams", 1, 14, &[]));
        assert!(holds("succession", "late writes", 1, 10, &[]));
    }

    #[test]
    fn naming_a_successor_makes_no_second_leader() {
        assert!(holds("succession", "a successor that is named", 1, 14, &[]));
    }

    #[test]
    fn late_kill_beside_a_successor_gives_a_story_of_two_leaders() {
        assert!(!holds("succession", "late datagrams", 1, 10, &["--kill-share", "819"]));
    }

    #[test]
    fn warm_app_works_only_within_its_leadership() {
        assert!(holds("warm", "a warm app", 1, 12, &[]));
    }

    #[test]
    fn record_is_released_only_after_the_command() {
        assert!(holds("containment", "a command", 2, 20, &[]));
    }

    #[test]
    fn group_that_no_process_kills_gives_a_story_of_a_survivor() {
        assert!(!holds("containment", "a command at level guardian", 2, 20, &["--drop", "acts"]));
    }
}
