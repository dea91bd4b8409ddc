//! Real processes with an armed deadman, in the states in which a process is hardest to end, and how long
//! after its kill deadline each of them is dead.
//!
//! `deadman-trials --trials 200` runs them and prints a table. It fails if one died early, later than 20 ms
//! after its deadline, of anything but its deadman, or not at all. When a process is gone is the scheduler's
//! to say, so that the 20 ms are meant for a machine that has nothing else to do. When one that spins last
//! ran an instruction of its own is not: that is asked for on any machine.
#![forbid(unsafe_code)]

mod patient;
mod signs;
mod state;
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
    /// How many processes, spread evenly over the states.
    #[arg(long, default_value_t = 200)]
    trials: usize,
    /// The seed of the deadlines; a random one if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// How long after its deadline a process must be dead, in milliseconds.
    #[arg(long, default_value_t = 20)]
    at_most_ms: u64,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A process of a trial: not for people.
    #[command(hide = true)]
    Patient {
        /// What it does until it dies.
        state: State,
        /// How long from its start the deadline is, in milliseconds.
        #[arg(long)]
        deadline_in_ms: u64,
        /// Where it leaves signs of life, if it does.
        #[arg(long)]
        signs: Option<PathBuf>,
    },
}

/// The deadlines, in milliseconds from a process's start: enough for the slowest state to be reached before.
const DEADLINES: std::ops::Range<u64> = 300..600;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.command {
        Some(Command::Patient { state, deadline_in_ms, ref signs }) => {
            suffer(state, Duration::from_millis(deadline_in_ms), signs.as_deref())
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

fn suffer(state: State, deadline_in: Duration, signs: Option<&Path>) -> Result<bool, Box<dyn Error>> {
    let signs = signs.map(|path| OpenOptions::new().write(true).open(path)).transpose()?;
    match patient::run(state, deadline_in, signs)? {}
}

fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let mut rng = Rng::with_seed(seed);
    let at_most = Duration::from_millis(args.at_most_ms);
    let mut verdicts = Vec::new();
    for (index, state) in State::ALL.into_iter().enumerate() {
        // The first states take what does not divide evenly.
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

/// One trial for each of `deadlines`, several at a time: not so many that processors are short, which is what
/// would be measured then.
fn try_all(state: State, deadlines: Vec<Duration>) -> io::Result<Vec<Result<Trial, TrialError>>> {
    let waiting = Mutex::new(deadlines);
    let next = || waiting.lock().ok().and_then(|mut waiting| waiting.pop());
    let lane = || std::iter::from_fn(|| Some(Trial::run(state, next()?))).collect::<Vec<_>>();
    thread::scope(|scope| {
        let mut lanes = Vec::new();
        for _ in 0..state.at_a_time() {
            lanes.push(thread::Builder::new().name("trials".into()).spawn_scoped(scope, lane)?);
        }
        let outcomes = lanes
            .into_iter()
            .map(|lane| lane.join().map_err(|_| io::Error::other("a thread that runs trials has panicked")));
        Ok(outcomes.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
    })
}
