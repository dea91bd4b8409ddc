//! Whether a copy survives its leaders: three `resumable-copy` processes share one, the leader is killed at
//! random moments, and in the end the copy must be what one leader would have made of it that nobody
//! disturbed.
//!
//! What lives here: the command line and the verdict. What doesn't: the processes ([`crew`]), the folder that
//! is copied ([`folder`](mod@folder)), and the copy itself (`examples/resumable-copy`).
#![forbid(unsafe_code)]

mod crew;
mod folder;

use clap::Parser;
use crew::Crew;
use fastrand::Rng;
use resumable_copy::{plan::Plan, progress::Progress, step};
use std::{collections::BTreeMap, error::Error, path::PathBuf, process::ExitCode, time::Duration};
use vvm_clock::SystemClock;

/// Kills the leaders of a copy at random, and checks that every step of it counted exactly once.
#[derive(Parser, Debug)]
#[command(name = "resumption")]
struct Args {
    /// How many leaders are killed in all. Copies follow one another until it is reached.
    #[arg(long, default_value_t = 1_000)]
    kills: u64,
    /// What goes wrong, and when: the same number, the same moments.
    #[arg(long)]
    seed: Option<u64>,
    /// The storage; a SQLite file of its own if not given.
    #[arg(long)]
    storage: Option<String>,
    /// As `--storage`, on a cluster of so many nodes of Apache Cassandra, started for it.
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

/// How many bytes a step copies, and how long it rests: short beside the life of a leader, so that many steps
/// are at risk.
const PIECE: usize = 4 << 10;
const PAUSE: Duration = Duration::from_millis(2);
/// How long a leader lives once it leads, at most.
const LIFE: Duration = Duration::from_millis(400);
/// The shortest of SQLite's.
const TTL_MS: u64 = 500;
/// Three nodes, three processes and whoever kills them share a machine.
#[cfg(feature = "scylla")]
const TTL_ON_CASSANDRA_MS: u64 = 3000;
/// A copy may take this long from its last kill to its end.
const REST: Duration = Duration::from_secs(300);

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
    println!("seed {seed}: three processes, TTL {ttl_ms} ms, {} leaders to be killed", args.kills);
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
        let mut crew = Crew::gather(args, own, &name, &from, &to).await?;
        // A leader that was killed between its file and its document has it made anew by the next one, and
        // only that one.
        let (mut before, mut again) = (BTreeMap::new(), 0);
        let done = crew
            .kill_until_done(args.kills - kills, &mut rng, || {
                let made = folder::made(&plan, &to);
                again += before.iter().filter(|(file, inode)| made.get(file) != Some(inode)).count() as u64;
                before = made;
            })
            .await;
        let deaths = crew.deaths;
        crew.dismiss();
        let done = done?;
        if again > deaths {
            return Err(format!("{again} files were made anew after {deaths} deaths").into());
        }
        let begin = Progress::begin(from.canonicalize()?, to.clone(), &plan);
        let expected = step::undisturbed(&plan, begin, PIECE)?;
        if (done.steps, done.bytes, &done.digest) != (expected.steps, expected.bytes, &expected.digest) {
            let kept = place.keep();
            return Err(format!(
                "the copy is not what it had to be; see {}\nexpected {expected:?}\nbut was  {done:?}",
                kept.display()
            )
            .into());
        }
        folder::same(&plan, &from, &to)?;
        kills += deaths;
        copies += 1;
        steps += done.steps;
        let took = SystemClock::read().since(began).as_secs();
        println!("copy {copies}: {} steps, each once; {kills} leaders killed; {took} s", done.steps);
    }
    println!("{copies} copies, {steps} steps, {kills} leaders killed: every step counted exactly once");
    Ok(())
}
