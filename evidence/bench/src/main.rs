//! What it costs: a table of measurements beside their goals. `cargo xtask bench` runs it.
//!
//! What lives here: the command line, and which measurement has which name. What a measurement does is in the
//! module of that name. Nothing is asserted: a goal that is missed is printed as such, and whether that
//! matters depends on the machine.
#![forbid(unsafe_code)]

mod bed;
mod beside_etcdctl;
mod figure;
mod held;
#[cfg(feature = "dynamodb")]
mod own_servers;
mod pairs;
mod report;
mod resources;
mod step_up;
mod storage;
mod succession;

use clap::{Parser, Subcommand, ValueEnum};
use figure::Figure;
use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

/// What it costs: pairs, held leaderships, storages, fail-over and hand-over, beside their goals.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct CommandLine {
    /// One JSON array of figures, with every sample, instead of a table.
    #[arg(long)]
    json: bool,
    /// This measurement alone; may be given more than once.
    #[arg(long, value_name = "NAME")]
    only: Vec<Measurement>,
    /// This storage alone: each verb beside its bare statement, 64 leaders that renew at once, 100 candidates
    /// at once. `sqlite:PATH`, `sled:PATH`, `scylla://HOSTS/KEYSPACE`, `dynamodb://REGION/TABLE`; keyspace
    /// and table are made where they are missing.
    #[arg(long, value_name = "URL", conflicts_with = "only")]
    storage: Option<String>,
    /// As `--storage`, on a cluster of so many nodes of Apache Cassandra, started for it.
    #[cfg(feature = "scylla")]
    #[arg(long, value_name = "NODES", conflicts_with_all = ["only", "storage"])]
    cassandra: Option<std::num::NonZeroU8>,
    /// With `--storage` (then `mem:`, too) or `--cassandra`: documents alone, in batches of 32, by one leader
    /// and by eight.
    #[arg(long, conflicts_with = "only")]
    documents: bool,
    /// As `--storage`, on DynamoDB Local, started for it.
    #[cfg(feature = "dynamodb")]
    #[arg(long, conflicts_with_all = ["only", "storage"])]
    dynamodb_local: bool,
    /// `vvm run` beside `etcdctl lock`: hand-over, fail-over, and what waiting costs (needs Debian's packages
    /// etcd-server and etcd-client).
    #[arg(long, conflicts_with_all = ["only", "storage", "documents"])]
    beside_etcdctl: bool,
    /// Fewer and shorter rounds: whether it works, not what it costs.
    #[arg(long)]
    quick: bool,
    #[command(subcommand)]
    part: Option<Part>,
}

/// What this binary starts itself again for.
#[derive(Debug, Subcommand)]
enum Part {
    /// One round of `held`, in a process of its own.
    #[command(hide = true)]
    HeldRound(held::Round),
    /// One round of `step-up`, in a process of its own.
    #[command(hide = true)]
    StepUpRound(step_up::Round),
    /// The command that is run beside etcdctl.
    #[command(hide = true)]
    EtcdctlWork {
        /// Where it says since when it runs.
        file: std::path::PathBuf,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Measurement {
    /// Acquire and release on `mem`, one pair after another.
    Pairs,
    /// Memory and CPU of many leaderships held at once.
    Held,
    /// Step-up of a service with many instances on `mem`: time, and memory of each.
    StepUp,
    /// Acquire, renew and release on SQLite, beside the bare statements.
    Sqlite,
    /// Fail-over and hand-over between real processes.
    Succession,
}

impl Measurement {
    fn run(self, quick: bool) -> Result<Vec<Figure>, Box<dyn Error>> {
        Ok(match self {
            Self::Pairs => pairs::measure(quick)?,
            Self::Held => held::measure(quick)?,
            Self::StepUp => step_up::measure(quick)?,
            Self::Sqlite => storage::measure_sqlite_verbs(quick)?,
            Self::Succession => succession::measure(quick)?,
        })
    }
}

fn main() -> ExitCode {
    if let Some(error) = servers::owned::guard() {
        eprintln!("bench: {error}");
        return ExitCode::FAILURE;
    }
    match run(&CommandLine::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(line: &CommandLine) -> Result<(), Box<dyn Error>> {
    match &line.part {
        Some(Part::HeldRound(round)) => return Ok(round.run()?),
        Some(Part::StepUpRound(round)) => return Ok(round.run()?),
        Some(Part::EtcdctlWork { file }) => return Ok(beside_etcdctl::work(file)?),
        None => {}
    }
    let mut out = io::stdout().lock();
    if line.beside_etcdctl {
        return beside_etcdctl::run(&mut out, line.quick, line.json);
    }
    let measure = if line.documents { storage::measure_documents } else { storage::measure };
    if let Some(url) = &line.storage {
        return print(&mut out, line, &measure(url, line.quick)?);
    }
    #[cfg(feature = "scylla")]
    if let Some(nodes) = line.cassandra {
        let cluster = servers::cassandra::Cassandra::start(nodes.get(), &servers::target())?;
        return print(&mut out, line, &measure(&cluster.url("bench"), line.quick)?);
    }
    #[cfg(feature = "dynamodb")]
    if line.dynamodb_local {
        let options = [("--json", line.json), ("--quick", line.quick), ("--documents", line.documents)];
        let given = options.iter().filter(|(_, given)| *given).map(|(option, _)| *option);
        return own_servers::on_dynamodb_local(&given.collect::<Vec<_>>());
    }
    if line.documents {
        return Err("--documents needs a storage to put them into: --storage URL".into());
    }
    let chosen = if line.only.is_empty() { Measurement::value_variants() } else { &line.only };
    let mut figures = Vec::new();
    for measurement in chosen {
        figures.extend(measurement.run(line.quick)?);
    }
    print(&mut out, line, &figures)
}

fn print(out: &mut impl Write, line: &CommandLine, figures: &[Figure]) -> Result<(), Box<dyn Error>> {
    let printed = if line.json { report::json(out, figures) } else { report::table(out, figures) };
    Ok(printed?)
}
