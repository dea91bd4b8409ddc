//! A deterministic simulation: several VVMs on one storage, mock time, one thread, no real I/O, and faults. `simulation
//! --seeds 1000` runs that many worlds, and reports the faults and the violations. `simulation --seed 42` runs one and
//! prints its trace. The same seed gives the same trace. The code under test is the real one, from the protocol to the
//! host. Only clock, randomness, spawning, deadman, storage and processes are simulated. Checked at every step: I1 to
//! I7, I9, I10, rising epochs and pauses. Checked at the end: without faults, every slot is led again. So a world in
//! which nothing happens is a violation.
#![forbid(unsafe_code)]

mod clock;
mod faults;
mod operator;
mod process;
mod records;
mod run;
mod storage;
mod world;

use clap::Parser;
use faults::Counts;
use run::{RunResult, run};
use std::{
    panic::{catch_unwind, resume_unwind},
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

/// Runs simulated worlds and checks the invariants in each.
#[derive(Debug, Parser)]
struct Args {
    /// How many seeds to run, counted from --first.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run only this seed and print its trace.
    #[arg(long)]
    seed: Option<u64>,
    /// Stop at the first violation.
    #[arg(long)]
    fail_fast: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(seed) = args.seed {
        let result = run(seed, true);
        report(std::slice::from_ref(&result));
        return exit(result.violation.is_none());
    }
    let results = run_all(args.first..args.first + args.seeds, args.fail_fast);
    report(&results);
    let total = total(&results);
    print!("{total}");
    let missing = total.missing();
    if args.seeds >= 500 && !missing.is_empty() {
        println!("never happened, so nothing is shown about it: {}", missing.join("; "));
        return ExitCode::FAILURE;
    }
    let repeated = repeats(&results);
    let violations = results.iter().filter(|result| result.violation.is_some()).count();
    println!(
        "{} seeds, {} steps, {violations} violations; {repeated} seeds run twice, each with the same trace",
        results.len(),
        results.iter().map(|result| result.steps).sum::<u64>(),
    );
    exit(violations == 0)
}

fn exit(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs every seed on some thread. Worlds are independent, so threads change only the time it takes.
fn run_all(seeds: std::ops::Range<u64>, fail_fast: bool) -> Vec<RunResult> {
    let next = AtomicU64::new(seeds.start);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut results: Vec<RunResult> = thread::scope(|scope| {
        let worker = || {
            let mut results = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    return results;
                }
                let result = run_caught(seed);
                if fail_fast && result.violation.is_some() {
                    next.store(seeds.end, Ordering::Relaxed);
                }
                results.push(result);
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    results.sort_by_key(|result| result.seed);
    results
}

/// A world that panics has violated a rule. Its thread goes on, because it has the results of other worlds.
fn run_caught(seed: u64) -> RunResult {
    catch_unwind(|| run(seed, false)).unwrap_or_else(|_| RunResult {
        seed,
        violation: Some("the rule that no world panics".to_owned()),
        counts: Counts::default(),
        hash: 0,
        steps: 0,
    })
}

/// Runs a few seeds again, and panics if a trace differs: then no result could be reproduced.
fn repeats(results: &[RunResult]) -> usize {
    let sample = results.iter().step_by(results.len().div_ceil(10).max(1));
    sample
        .inspect(|result| {
            let again = run_caught(result.seed);
            assert_eq!(again.hash, result.hash, "seed {} gave two different traces", result.seed);
        })
        .count()
}

fn total(results: &[RunResult]) -> Counts {
    results.iter().fold(Counts::default(), |mut total, result| {
        total += result.counts.clone();
        total
    })
}

fn report(results: &[RunResult]) {
    for result in results {
        if let Some(violation) = &result.violation {
            println!("seed {} violates {violation}", result.seed);
        }
    }
    if let [result] = results {
        println!("trace {:016x}, {} steps", result.hash, result.steps);
    }
}
