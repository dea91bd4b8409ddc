//! Measures how long after its kill deadline a process is dead, in states in which it is hard to end.
//!
//! `kills deadman --trials 200` prints a table. It fails if a process died early, more than 20 ms late, by
//! anything but its deadman, or not at all. The scheduler affects the time of death, so the 20 ms need an
//! idle machine. The last instruction of a spinning process is checked on every machine.

mod subject;
mod trial;

use clap::ValueEnum;
use fastrand::Rng;
use std::{
    convert::Infallible, error::Error, fmt, fs::OpenOptions, io, path::Path, sync::Mutex, thread,
    time::Duration,
};
use trial::{Trial, Verdict};

/// The arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The number of processes, spread evenly over the states.
    #[arg(long, default_value_t = 200)]
    trials: usize,
    /// The seed of the deadlines. The default is random.
    #[arg(long)]
    seed: Option<u64>,
    /// The bound between deadline and death, in milliseconds.
    #[arg(long, default_value_t = 20)]
    at_most_ms: u64,
}

/// The state of a process at its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum State {
    /// It waits.
    Idle,
    /// Every thread of its async runtime spins and never yields.
    Spinning,
    /// Every thread of its async runtime, and its main thread, are in a system call that does not return.
    Blocked,
    /// It was stopped with SIGSTOP, so none of its threads runs.
    Stopped,
    /// Its async runtime waits for a storage that does not answer.
    StorageHung,
}

impl State {
    pub(crate) const ALL: [Self; 5] =
        [Self::Idle, Self::Spinning, Self::Blocked, Self::Stopped, Self::StorageHung];

    /// Returns whether a process in this state writes signs of life, which show when it last ran.
    pub(crate) fn leaves_signs(self) -> bool {
        self == Self::Spinning
    }

    /// Returns how many processes in this state can run at once. A spinning one takes every processor.
    pub(crate) fn at_a_time(self) -> usize {
        match self {
            Self::Spinning => 1,
            Self::Idle | Self::Blocked | Self::Stopped | Self::StorageHung => 4,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Idle => "idle",
            Self::Spinning => "spinning on all runtime threads",
            Self::Blocked => "blocked in a system call",
            Self::Stopped => "stopped with SIGSTOP",
            Self::StorageHung => "storage hung",
        })
    }
}

/// The deadlines, in milliseconds from a process's start: later than the slowest state is reached.
const DEADLINES: std::ops::Range<u64> = 300..600;

/// Becomes the process of a trial. Returns only after an error.
pub(crate) fn wait_in(
    state: State,
    deadline_in: Duration,
    signs: Option<&Path>,
) -> Result<Infallible, Box<dyn Error>> {
    let signs = signs.map(|path| OpenOptions::new().write(true).open(path)).transpose()?;
    subject::run(state, deadline_in, signs)
}

/// Returns whether there were no violations.
pub(crate) fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
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
    print!("seed {seed}\n{}", trial::Table(&verdicts));
    Ok(verdicts.iter().all(|verdict| verdict.violations.is_empty()))
}

/// Runs one trial for each deadline, several at a time, but not more than the processors allow.
fn try_all(state: State, deadlines: Vec<Duration>) -> io::Result<Vec<trial::Outcome>> {
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
