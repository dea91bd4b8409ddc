//! `cargo xtask resume`: three `resumable-copy` processes share a copy, and their leader is killed at random
//! moments. The result must be the same as that of a copy without kills: each step counted exactly once.
#![forbid(unsafe_code)]

mod copiers;
mod folder;

use clap::Parser;
use copiers::Copiers;
use fastrand::Rng;
use resumable_copy::{Plan, Progress, step};
use std::{collections::BTreeMap, error::Error, path::PathBuf, process::ExitCode, time::Duration};
use vvm_clock::SystemClock;

/// Kills the leaders of a copy at random, and checks that every step of it counted exactly once.
#[derive(Parser, Debug)]
#[command(name = "resumption")]
struct Args {
    /// How many leaders are killed in all. Copies follow one another until it is reached.
    #[arg(long, default_value_t = 1_000)]
    kills: u64,
    /// The seed of the files and of the moments of the kills; random if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// The storage; a SQLite file of its own if not given.
    #[arg(long)]
    storage: Option<String>,
    /// Start a cluster of so many nodes of Apache Cassandra, and use it as the storage.
    #[cfg(feature = "scylla")]
    #[arg(long, value_name = "NODES", conflicts_with = "storage")]
    cassandra: Option<std::num::NonZeroU8>,
    /// The TTL of the leaderships, in milliseconds; 500 if not given, 3000 with `--cassandra`.
    #[arg(long)]
    ttl_ms: Option<u64>,
    /// The resumable-copy program; the one beside this program if not given.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// How many bytes a step copies, and the pause after it. A leadership has many steps, so that kills hit all
/// parts of a step.
const PIECE: usize = 4 << 10;
const PAUSE: Duration = Duration::from_millis(2);
/// A leader is killed within this time.
const LONGEST_LEADERSHIP: Duration = Duration::from_millis(400);
/// The shortest TTL that SQLite takes.
const TTL_MS: u64 = 500;
/// Longer, because three nodes and three processes share a machine.
#[cfg(feature = "scylla")]
const TTL_ON_CASSANDRA_MS: u64 = 3000;
/// How long a copy may take after its last kill.
const LONGEST_COPY: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    #[cfg(feature = "scylla")]
    if let Some(error) = servers::owned::guard() {
        eprintln!("resumption: {error}");
        return ExitCode::FAILURE;
    }
    match started(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("resumption: {error}");
            ExitCode::FAILURE
        }
    }
}

fn started(args: Args) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    #[cfg(feature = "scylla")]
    let mut args = args;
    #[cfg(feature = "scylla")]
    let _cluster = match args.cassandra {
        Some(nodes) => {
            let cluster = servers::cassandra::Cassandra::start(nodes.get(), &servers::target())?;
            let url = cluster.url("resumption");
            runtime.block_on(vvm_storage::init_storage(&url))?;
            args.storage = Some(url);
            args.ttl_ms = Some(args.ttl_ms.unwrap_or(TTL_ON_CASSANDRA_MS));
            Some(cluster)
        }
        None => None,
    };
    runtime.block_on(run(&args))
}

async fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let ttl_ms = args.ttl_ms.unwrap_or(TTL_MS);
    println!("seed {seed}: three processes, TTL {ttl_ms} ms; kills {} leaders", args.kills);
    let mut rng = Rng::with_seed(seed);
    let (mut kills, mut copies, mut steps) = (0, 0, 0);
    let began = SystemClock::read();
    while kills < args.kills {
        let place = tempfile::tempdir()?;
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        folder::fill(&from, &mut rng)?;
        let own = format!("sqlite:{}?allow=overlay", place.path().join("copy.db").display());
        let name = format!("copy-{seed}-{copies}");
        let plan = Plan::of(&from)?;
        let mut copiers = Copiers::start(args, own, &name, &from, &to).await?;
        // If a leader is killed between the rename of a file and its document, its successor makes that one
        // file again.
        let (mut before, mut again) = (BTreeMap::new(), 0);
        let done = copiers
            .kill_until_done(args.kills - kills, &mut rng, || {
                let made = folder::complete(&plan, &to);
                again += before.iter().filter(|(file, inode)| made.get(file) != Some(inode)).count() as u64;
                before = made;
            })
            .await;
        let killed = copiers.kills;
        copiers.stop();
        let done = done?;
        if again > killed {
            return Err(format!("{again} files were made again after {killed} kills").into());
        }
        let begin = Progress::begin(from.canonicalize()?, to.clone(), &plan);
        let expected = step::undisturbed(&plan, begin, PIECE)?;
        if (done.steps, done.bytes, &done.digest) != (expected.steps, expected.bytes, &expected.digest) {
            let kept = place.keep();
            return Err(format!(
                "the copy in {} differs from one without kills\nexpected {expected:?}\nfound    {done:?}",
                kept.display()
            )
            .into());
        }
        folder::check_equal(&plan, &from, &to)?;
        kills += killed;
        copies += 1;
        steps += done.steps;
        let took = SystemClock::read().since(began).as_secs();
        println!("copy {copies}: {} steps, each once; {kills} leaders killed; {took} s", done.steps);
    }
    println!("{copies} copies, {steps} steps, {kills} leaders killed: each step counted exactly once");
    Ok(())
}
