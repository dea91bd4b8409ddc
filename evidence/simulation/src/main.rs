//! A deterministic simulation: several VVMs on one storage, mock time, one thread, no real I/O, and faults.
//!
//! `simulation --seeds 1000` runs that many worlds and reports what went wrong in them and what it broke;
//! `simulation --seed 42` runs one and prints its trace. The same seed gives the same trace, to the letter.
//!
//! The code under test is the real one, from the protocol to the orchestrator; only clock, randomness,
//! spawning, deadman and storage are the world's. Checked at every step: I1, I3, I4, I5, I6, I9, rising
//! epochs; at the end, that calm weather brings leaders back.
#![forbid(unsafe_code)]

mod executor;
mod faults;
mod process;
mod records;
mod run;
mod storage;
mod trace;
mod world;

use clap::Parser;
use faults::Counts;
use run::{Verdict, run};
use std::{
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
    /// Run this one alone and print its trace.
    #[arg(long)]
    seed: Option<u64>,
    /// Stop at the first violation.
    #[arg(long)]
    fail_fast: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(seed) = args.seed {
        let verdict = run(seed, true);
        report(std::slice::from_ref(&verdict));
        return exit(verdict.violation.is_none());
    }
    let verdicts = run_all(args.first..args.first + args.seeds, args.fail_fast);
    report(&verdicts);
    let total = total(&verdicts);
    print!("{total}");
    let missing = total.missing();
    if args.seeds >= 500 && !missing.is_empty() {
        println!("never happened, so nothing was shown about it: {}", missing.join("; "));
        return ExitCode::FAILURE;
    }
    let repeated = repeats(&verdicts);
    let violations = verdicts.iter().filter(|verdict| verdict.violation.is_some()).count();
    println!(
        "{} seeds, {} steps, {violations} violations; {repeated} seeds run twice, each with the same trace",
        verdicts.len(),
        verdicts.iter().map(|verdict| verdict.steps).sum::<u64>(),
    );
    exit(violations == 0)
}

fn exit(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every seed on some thread; each world has one of its own, so the threads change nothing but the time it
/// takes.
fn run_all(seeds: std::ops::Range<u64>, fail_fast: bool) -> Vec<Verdict> {
    let next = AtomicU64::new(seeds.start);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut verdicts: Vec<Verdict> = thread::scope(|scope| {
        let worker = || {
            let mut verdicts = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    return verdicts;
                }
                let verdict = run(seed, false);
                if fail_fast && verdict.violation.is_some() {
                    next.store(seeds.end, Ordering::Relaxed);
                }
                verdicts.push(verdict);
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).flatten().collect()
    });
    verdicts.sort_by_key(|verdict| verdict.seed);
    verdicts
}

/// Runs a few seeds again. A trace that differs would make every other figure here worthless.
fn repeats(verdicts: &[Verdict]) -> usize {
    let sample = verdicts.iter().step_by(verdicts.len().div_ceil(10).max(1));
    sample
        .inspect(|verdict| {
            let again = run(verdict.seed, false);
            assert_eq!(again.hash, verdict.hash, "seed {} gave two different traces", verdict.seed);
        })
        .count()
}

fn total(verdicts: &[Verdict]) -> Counts {
    verdicts.iter().fold(Counts::default(), |mut total, verdict| {
        total += verdict.counts.clone();
        total
    })
}

fn report(verdicts: &[Verdict]) {
    for verdict in verdicts {
        if let Some(violation) = &verdict.violation {
            println!("seed {} violates {violation}", verdict.seed);
        }
    }
    if let [verdict] = verdicts {
        println!("trace {:016x}, {} steps", verdict.hash, verdict.steps);
    }
}
