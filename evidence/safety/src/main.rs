//! Real `vvm run` processes on one SQLite file, killed, stopped and terminated at random moments.
//!
//! `safety --duration 180 --instances 5 --ttl-ms 1000` runs it and prints what was done, what was seen and what was
//! violated: two workers at once (an exclusive lock that a worker holds until the kernel has ended it), epochs that
//! don't rise, a worker that outlives its host by more than 50 ms, a leader less than 60 % of the time.
//!
//! `safety fugitives` is about workers that try to get away ([`fugitives`]).
#![forbid(unsafe_code)]

mod fugitives;
mod instance;
mod orphans;
mod proc_fs;
mod trouble;
mod verdict;
mod worker;

use clap::{Parser, Subcommand};
use clock::{Instant, SystemClock};
use fastrand::Rng;
use instance::Instance;
use orphans::Orphans;
use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};
use trouble::Troubles;

/// Kills vvm processes at random and checks that no two workers ever run at once.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// How long, in seconds.
    #[arg(long, default_value_t = 180)]
    duration: u64,
    /// How many candidates.
    #[arg(long, default_value_t = 5)]
    instances: usize,
    /// The TTL, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    ttl_ms: u64,
    /// Mean time between two troubles, in milliseconds.
    #[arg(long, default_value_t = 600)]
    trouble_ms: u64,
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
/// The least share of the time that somebody must lead.
const LED: f64 = 0.6;

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
        let hint = format!("{} is missing: build it with `cargo build --release -p vvm-host`", vvm.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, hint));
    }
    Ok(vvm)
}

fn run(args: &Args) -> io::Result<bool> {
    let vvm = program(args)?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}; {} candidates, TTL {} ms, {} s", args.instances, args.ttl_ms, args.duration);
    let mut rng = Rng::with_seed(seed);
    let folder = tempfile::tempdir()?;
    let began = SystemClock::read();
    let ends_at = began.after(Duration::from_secs(args.duration));
    let (troubles, orphans, instances) = torment(args, &vvm, folder.path(), ends_at, &mut rng)?;
    let ended = SystemClock::read();
    for instance in instances {
        instance.end()?;
    }
    println!("{troubles}");
    let spells = verdict::read(folder.path())?;
    let mut verdict = verdict::judge(spells, began, ended, LED);
    verdict.violations.extend(orphans.violations);
    println!("workers outlived their hosts by at most {:?} ({} seen)", orphans.longest, orphans.seen);
    println!("{verdict}");
    if !verdict.violations.is_empty() {
        println!("the workers' logs are kept in {}", folder.keep().display());
    }
    Ok(verdict.violations.is_empty())
}

fn torment(
    args: &Args,
    vvm: &Path,
    folder: &Path,
    ends_at: Instant,
    rng: &mut Rng,
) -> io::Result<(Troubles, Orphans, Vec<Instance>)> {
    let ttl = Duration::from_millis(args.ttl_ms);
    let mut instances = (0..args.instances)
        .map(|number| Instance::start(vvm, folder, number, ttl))
        .collect::<io::Result<Vec<_>>>()?;
    let mut troubles = Troubles::default();
    let mut orphans = Orphans::default();
    let mut next_trouble = SystemClock::read();
    while SystemClock::read() < ends_at {
        let now = SystemClock::read();
        for instance in &mut instances {
            instance.restart_if_due(now, rng)?;
        }
        orphans.look(now, folder, OUTLIVES)?;
        troubles.resume_due(now);
        if now >= next_trouble {
            troubles.make(now, &instances, rng);
            let mean = Duration::from_millis(args.trouble_ms);
            next_trouble = now.after(mean.mul_f64(2.0 * rng.f64()));
        }
        // The pace of looking, not a way to wait for anything: fine enough to time an orphan's life.
        SystemClock::block_for(Duration::from_millis(3));
    }
    troubles.resume_all();
    Ok((troubles, orphans, instances))
}
