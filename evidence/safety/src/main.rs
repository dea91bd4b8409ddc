//! Real `vvm run` processes on one SQLite file, killed, stopped and terminated at random moments.
//!
//! `safety --duration 180` prints the faults, the leaderships and the violations. Violations are:
//!
//! - two workers at once, by an exclusive lock that a worker holds until it has ended;
//! - an epoch that does not rise;
//! - a worker, or its background process, that outlives its host or guardian by more than 50 ms;
//! - a process that is left at the end;
//! - a leader for less than 60 % of the time.
//!
//! `safety --kills 500` ends after so many kills. `safety fugitives` tries workers that escape
//! ([`fugitives`]).
#![forbid(unsafe_code)]

mod fugitives;
mod instance;
mod orphans;
mod proc_fs;
mod remains;
mod succession;
mod terminal;
mod torment;
mod trouble;
mod verdict;
mod worker;

use clap::{Parser, Subcommand};
use fastrand::Rng;
use std::{io, path::PathBuf, process::ExitCode, time::Duration};
use torment::Ends;

/// Kills vvm processes at random and checks that no two workers ever run at once.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// How long to run, in seconds.
    #[arg(long, default_value_t = 180)]
    duration: u64,
    /// End after so many kills instead.
    #[arg(long, conflicts_with = "duration")]
    kills: Option<u64>,
    /// How many candidates.
    #[arg(long, default_value_t = 5)]
    instances: usize,
    /// The TTL, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    ttl_ms: u64,
    /// Mean time between two faults, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    trouble_ms: u64,
    /// How long a worker, or its background process, may outlive host or guardian, in milliseconds. More than
    /// 50 is for busy machines; the protocol's limit is 0.2 TTL.
    #[arg(long, default_value_t = 50)]
    at_most_ms: u64,
    /// The seed of the faults; random if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// The vvm program; the one beside this program if not given.
    #[arg(long)]
    vvm: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Workers that try to escape containment, and how long they outlive their host.
    Fugitives(fugitives::Options),
    /// The worker that `vvm run` starts. Internal.
    #[command(hide = true)]
    Work {
        /// The folder for its log.
        folder: PathBuf,
    },
}

/// The longest time a worker may outlive its host.
const OUTLIVES: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.command {
        Some(Command::Work { folder }) => worker::work(folder),
        Some(Command::Fugitives(options)) => program(&args).and_then(|vvm| fugitives::run(&vvm, options)),
        None => run(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("safety: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The `vvm` under test.
fn program(args: &Args) -> io::Result<PathBuf> {
    let vvm = match &args.vvm {
        Some(vvm) => vvm.clone(),
        None => std::env::current_exe()?.with_file_name("vvm"),
    };
    if !vvm.exists() {
        let hint = format!("{} is missing: build it with `cargo build --release -p vvm-cli`", vvm.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, hint));
    }
    Ok(vvm)
}

fn run(args: &Args) -> io::Result<bool> {
    let vvm = program(args)?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let ends = args.kills.map_or(Ends::After(Duration::from_secs(args.duration)), Ends::AfterKills);
    println!("seed {seed}; {} candidates, TTL {} ms, {ends}", args.instances, args.ttl_ms);
    let folder = tempfile::tempdir()?;
    let plan = torment::Plan {
        vvm: &vvm,
        folder: folder.path(),
        instances: args.instances,
        ttl: Duration::from_millis(args.ttl_ms),
        mean: Duration::from_millis(args.trouble_ms),
        most: Duration::from_millis(args.at_most_ms),
        ends,
    };
    let violations = plan.run(&mut Rng::with_seed(seed))?;
    if violations > 0 {
        println!("the workers' logs are kept in {}", folder.keep().display());
    }
    Ok(violations == 0)
}
