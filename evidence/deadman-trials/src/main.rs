//! Measures how long after its kill deadline a process is dead, in states in which it is hard to end.
//!
//! `deadman-trials --trials 200` prints a table. It fails if a process died early, more than 20 ms late, by
//! anything but its deadman, or not at all. The scheduler affects the time of death, so the 20 ms need an
//! idle machine. The last instruction of a spinning process is checked on every machine.
#![forbid(unsafe_code)]

mod signs;
mod state;
mod subject;
mod trial;
mod verdict;

use clap::{Parser, Subcommand};
use fastrand::Rng;
use state::State;
use std::{
    error::Error,
    fs::OpenOptions,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Mutex,
    thread,
    time::Duration,
};
use trial::{Trial, TrialError};
use verdict::Verdict;

/// Starts processes that arm a deadman and then hang, and measures when they die.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The number of processes, spread evenly over the states.
    #[arg(long, default_value_t = 200)]
    trials: usize,
    /// The seed of the deadlines. The default is random.
    #[arg(long)]
    seed: Option<u64>,
    /// The bound between deadline and death, in milliseconds.
    #[arg(long, default_value_t = 20)]
    at_most_ms: u64,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The process of a trial, for internal use.
    #[command(hide = true)]
    Subject {
        /// Its state at the deadline.
        state: State,
        /// The time from its start to the deadline, in milliseconds.
        #[arg(long)]
        deadline_in_ms: u64,
        /// The file for its signs of life.
        #[arg(long)]
        signs: Option<PathBuf>,
    },
}

/// The deadlines, in milliseconds from a process's start: later than the slowest state is reached.
const DEADLINES: std::ops::Range<u64> = 300..600;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.command {
        Some(Command::Subject { state, deadline_in_ms, ref signs }) => {
            wait_in(state, Duration::from_millis(deadline_in_ms), signs.as_deref())
        }
        None => run(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("deadman-trials: {error}");
            ExitCode::FAILURE
        }
    }
}

fn wait_in(state: State, deadline_in: Duration, signs: Option<&Path>) -> Result<bool, Box<dyn Error>> {
    let signs = signs.map(|path| OpenOptions::new().write(true).open(path)).transpose()?;
    match subject::run(state, deadline_in, signs)? {}
}

fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let mut rng = Rng::with_seed(seed);
    let at_most = Duration::from_millis(args.at_most_ms);
    let mut verdicts = Vec::new();
    for (index, state) in State::ALL.into_iter().enumerate() {
        // The first states take the remainder.
        let count = (args.trials + State::ALL.len() - 1 - index) / State::ALL.len();
        let deadlines = (0..count).map(|_| Duration::from_millis(rng.u64(DEADLINES))).collect();
        verdicts.push(Verdict::of(state, at_most, try_all(state, deadlines)?));
    }
    if args.json {
        println!("{}", serde_json::to_string(&verdict::Report::new(seed, &verdicts))?);
    } else {
        print!("seed {seed}\n{}", verdict::Table(&verdicts));
    }
    Ok(verdicts.iter().all(|verdict| verdict.violations.is_empty()))
}

/// Runs one trial for each deadline, several at a time, but not more than the processors allow.
fn try_all(state: State, deadlines: Vec<Duration>) -> io::Result<Vec<Result<Trial, TrialError>>> {
    let waiting = Mutex::new(deadlines);
    let next = || waiting.lock().ok().and_then(|mut waiting| waiting.pop());
    let worker = || std::iter::from_fn(|| Some(Trial::run(state, next()?))).collect::<Vec<_>>();
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for _ in 0..state.at_a_time() {
            workers.push(thread::Builder::new().name("trials".into()).spawn_scoped(scope, worker)?);
        }
        let outcomes = workers.into_iter().map(|worker| {
            worker.join().map_err(|_| io::Error::other("a thread that runs trials has panicked"))
        });
        Ok(outcomes.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
    })
}
