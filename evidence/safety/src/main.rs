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
//! `safety --kills 500` ends after so many kills. `safety --old PATH` tries a rolling upgrade: candidates are
//! of two versions, and each has led. `safety fugitives` tries workers that escape ([`fugitives`]).
#![forbid(unsafe_code)]

mod fault;
mod fugitives;
mod instance;
mod orphans;
mod plan;
mod proc_fs;
mod verdict;

use clap::{Parser, Subcommand};
use fastrand::Rng;
use instance::Setup;
use plan::Ends;
#[cfg(feature = "dynamodb")]
use servers::dynamodb::DynamoDbLocal;
use std::{env, io, path::PathBuf, process::ExitCode, rc::Rc, time::Duration};

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
    /// The TTL, in milliseconds; 1000 if not given, 2000 with `--dynamodb-local`.
    #[arg(long)]
    ttl_ms: Option<u64>,
    /// The mean time between two faults, in milliseconds; the TTL if not given.
    #[arg(long)]
    fault_ms: Option<u64>,
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
    /// An older vvm program, for every second start; a relative path is beside this program. The folder for
    /// temporary files must not be on overlayfs, which the older program may not be able to allow.
    #[arg(long)]
    old: Option<PathBuf>,
    /// Use DynamoDB Local as the storage, and start it.
    #[cfg(feature = "dynamodb")]
    #[arg(long)]
    dynamodb_local: bool,
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

fn main() -> ExitCode {
    #[cfg(feature = "dynamodb")]
    if let Some(error) = servers::owned::guard() {
        eprintln!("safety: {error}");
        return ExitCode::FAILURE;
    }
    let args = Args::parse();
    let done = match &args.command {
        Some(Command::Work { folder }) => fault::work(folder),
        Some(Command::Fugitives(options)) => program(&args)
            .and_then(|vvm| fugitives::run(&vvm, options, Duration::from_millis(args.at_most_ms))),
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
    existing(match &args.vvm {
        Some(vvm) => vvm.clone(),
        None => env::current_exe()?.with_file_name("vvm"),
    })
}

fn existing(vvm: PathBuf) -> io::Result<PathBuf> {
    if !vvm.exists() {
        let hint = format!("{} is missing: build it with `cargo build --release -p vvm-cli`", vvm.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, hint));
    }
    Ok(vvm)
}

fn run(args: &Args) -> io::Result<bool> {
    let mut programs = vec![program(args)?];
    if let Some(old) = &args.old {
        programs.push(existing(env::current_exe()?.with_file_name(old))?);
    }
    let folder = tempfile::tempdir()?;
    // An older program may not know the option.
    let allow = if args.old.is_none() { "?allow=overlay" } else { "" };
    let storage = format!("sqlite:{}{allow}", folder.path().join("storage.db").display());
    let ttl_ms = 1000;
    #[cfg(feature = "dynamodb")]
    let (storage, ttl_ms, _server) = if args.dynamodb_local {
        let server = DynamoDbLocal::start(&servers::target()).map_err(io::Error::other)?;
        let storage = format!("dynamodb://eu-west-1/safety?endpoint={}", server.endpoint());
        init(programs.last(), &storage)?;
        (storage, 2000, Some(server))
    } else {
        (storage, ttl_ms, None)
    };
    let ttl_ms = args.ttl_ms.unwrap_or(ttl_ms);
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let ends = args.kills.map_or(Ends::After(Duration::from_secs(args.duration)), Ends::AfterKills);
    println!("seed {seed}; {} candidates, TTL {ttl_ms} ms, {ends}", args.instances);
    let setup =
        Setup { programs, folder: folder.path().to_owned(), storage, ttl: Duration::from_millis(ttl_ms) };
    let plan = plan::Plan {
        setup: Rc::new(setup),
        instances: args.instances,
        mean: Duration::from_millis(args.fault_ms.unwrap_or(ttl_ms)),
        most: Duration::from_millis(args.at_most_ms),
        ends,
    };
    let violations = plan.run(&mut Rng::with_seed(seed))?;
    if violations > 0 {
        println!("the workers' logs are kept in {}", folder.keep().display());
    }
    Ok(violations == 0)
}

/// Has the oldest program create what the storage needs.
#[cfg(feature = "dynamodb")]
fn init(vvm: Option<&PathBuf>, storage: &str) -> io::Result<()> {
    let Some(vvm) = vvm else { return Ok(()) };
    let mut init = std::process::Command::new(vvm);
    init.args(["init-storage", "--storage", storage]).envs(instance::LOCAL_CREDENTIALS);
    if init.status()?.success() { Ok(()) } else { Err(io::Error::other("vvm init-storage failed")) }
}
