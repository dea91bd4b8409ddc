//! Real `vvm run` processes on one SQLite file, killed, stopped and terminated at random moments.
//!
//! `safety --duration 180 --instances 5 --ttl-ms 1000` runs it and prints what was done, what was seen and
//! what was violated: two workers at once (an exclusive lock that a worker holds until the kernel has ended
//! it), epochs that don't rise, a worker or what it has in the background that outlives its host or its
//! guardian by more than 50 ms, anybody left at the end, a leader less than 60 % of the time. `safety --kills
//! 500` goes on until so many were killed: host, guardian, worker, guardian and host at once, or their
//! terminal.
//!
//! `safety fugitives` is about workers that try to get away ([`fugitives`]).
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
    /// How long, in seconds.
    #[arg(long, default_value_t = 180)]
    duration: u64,
    /// Until so many were killed, instead.
    #[arg(long, conflicts_with = "duration")]
    kills: Option<u64>,
    /// How many candidates.
    #[arg(long, default_value_t = 5)]
    instances: usize,
    /// The TTL, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    ttl_ms: u64,
    /// Mean time between two troubles, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    trouble_ms: u64,
    /// How long a worker, or what it has in the background, may outlive host or guardian, in milliseconds.
    /// More than the usual 50 is for machines that are busy with other things; what nobody may exceed is 0.2
    /// TTL.
    #[arg(long, default_value_t = 50)]
    at_most_ms: u64,
    /// The seed of the troubles; a random one if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// The vvm program; the one beside this program if not given.
    #[arg(long)]
    vvm: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Workers that try to get away, and how long the last of them outlives its host.
    Fugitives(fugitives::Options),
    /// The worker that `vvm run` starts: not for people.
    #[command(hide = true)]
    Work {
        /// Where to write what it saw.
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

/// The `vvm` to try.
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
