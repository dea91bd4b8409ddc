//! `cargo xtask bench`: a table of measurements.
#![forbid(unsafe_code)]

mod beside_peers;
mod held;
mod lost_machines;
mod process;
mod report;
mod setup;
#[cfg(feature = "postgres")]
mod standbys;
mod step_up;
mod storage;
mod successors;
mod takeovers;
#[cfg(feature = "postgres")]
mod ui;
mod waiting;
mod warm;

use clap::{Parser, Subcommand, ValueEnum};
use report::{Failure, Figure};
use std::{io, path::PathBuf, process::ExitCode};

/// Measures pairs, held leaderships, storages, fail-over and hand-over.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct CommandLine {
    /// Only this measurement; may be given more than once. If none is, all that need no server.
    #[arg(long, value_name = "NAME")]
    only: Vec<Measurement>,
    /// Only this storage: each verb, beside its bare statement on most of them, and 64 leaders that renew at once.
    /// `sqlite:PATH`, `sled:PATH`, `scylla://HOSTS/KEYSPACE`, `postgres://USER@HOST/DATABASE`,
    /// `mysql://USER@HOST/DATABASE`, `etcd://HOSTS/PREFIX`, `k8s://NAMESPACE`, `s3://BUCKET/PREFIX?endpoint=…`, `dynamodb://REGION/TABLE`;
    /// initialises the storage.
    #[arg(long, value_name = "URL", conflicts_with = "only")]
    storage: Option<String>,
    /// With `--storage` (also `mem:`) or `--server`: only documents, in batches of 32, by one leader.
    #[arg(long, conflicts_with = "only")]
    documents: bool,
    /// With `--storage` or `--server`: only so many names led at once by this process, with a TTL of 20 s: writes,
    /// CPU time, memory, and how many leaderships are lost.
    #[arg(long, value_name = "NAMES", conflicts_with_all = ["only", "documents"])]
    held: Option<std::num::NonZeroU32>,
    /// As `--storage`, on this server, which it starts and ends. With `--only warm`: that measurement on PostgreSQL.
    #[arg(long, value_name = "SCHEME", conflicts_with = "storage")]
    server: Vec<setup::Server>,
    /// One page with plots, in this folder: `vvm` beside its peers, and the cost of SQLite and of each `--server`, of which
    /// there may be several.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["storage", "only", "documents", "held"])]
    report: Option<PathBuf>,
    /// As JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Fewer and shorter rounds, to see that it works.
    #[arg(long)]
    quick: bool,
    #[command(subcommand)]
    part: Option<Part>,
}

/// Trials, and processes that this program starts of itself.
#[derive(Debug, Subcommand)]
enum Part {
    /// Pairs of hosts with a successor in trouble, in network namespaces on PostgreSQL, which it starts and ends (needs root
    /// and iproute2).
    Successors(successors::Args),
    /// The worker of a pair.
    #[command(hide = true)]
    SuccessorsWork { folder: PathBuf, side: successors::Side },
    /// One round of `held`, in a process of its own.
    #[command(hide = true)]
    HeldRound(held::Round),
    /// One round of `step-up`, in a process of its own.
    #[command(hide = true)]
    StepUpRound(step_up::Round),
    /// The command that `vvm` and its peers run.
    #[command(hide = true)]
    PeersWork {
        /// The file in which it notes its start.
        file: PathBuf,
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
    /// Fail-over between real processes after the death of the leader's host.
    DeadHost,
    /// Fail-over and hand-over of an app that needs five seconds to start, warm and cold.
    Warm,
    /// What a waiting `vvm run` costs: memory, CPU, and requests to the storage, which it counts while it leads, too.
    Waiting,
    /// `vvm run` beside `etcdctl lock` and client-go's leader election: hand-over, fail-over, and the cost of waiting.
    /// Needs Debian's packages etcd-server and etcd-client; client-go is left out unless kube-apiserver was built.
    BesidePeers,
    /// Hand-over and fail-over between two network namespaces, on PostgreSQL, etcd and Kubernetes, which it
    /// starts and ends (needs root and iproute2). Kubernetes is left out unless kube-apiserver was built.
    BetweenMachines,
    /// The loss of a machine whose leader has named a successor, between two network namespaces, on PostgreSQL, etcd and
    /// S3, which it starts and ends (needs root and iproute2).
    LostMachines,
    /// Requests and connections of 200 standbys on PostgreSQL, which it starts and ends, with and without
    /// notifications.
    #[cfg(feature = "postgres")]
    Standbys,
    /// What `vvm ui` costs with 1000 led names on PostgreSQL, which it starts and ends, and with 1 and 20 browsers.
    #[cfg(feature = "postgres")]
    Ui,
}

impl Measurement {
    const USUAL: [Self; 7] =
        [Self::Pairs, Self::Held, Self::StepUp, Self::Sqlite, Self::DeadHost, Self::Warm, Self::Waiting];

    fn run(self, quick: bool) -> Result<Vec<Figure>, Failure> {
        Ok(match self {
            Self::Pairs => held::measure_pairs(quick)?,
            Self::Held => held::measure(quick)?,
            Self::StepUp => step_up::measure(quick)?,
            Self::Sqlite => storage::measure_sqlite_verbs(quick)?,
            Self::DeadHost => takeovers::of_dead_hosts(quick)?,
            Self::Warm => warm::measure(quick)?,
            Self::Waiting => waiting::measure(quick)?,
            Self::BesidePeers => beside_peers::measure(quick)?,
            Self::BetweenMachines => takeovers::between_machines(quick)?,
            Self::LostMachines => lost_machines::measure(quick)?,
            #[cfg(feature = "postgres")]
            Self::Standbys => standbys::measure(quick)?,
            #[cfg(feature = "postgres")]
            Self::Ui => ui::measure(quick)?,
        })
    }
}

fn main() -> ExitCode {
    match run(&CommandLine::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(line: &CommandLine) -> Result<(), Failure> {
    match &line.part {
        Some(Part::Successors(args)) => return successors::run(args),
        Some(Part::SuccessorsWork { folder, side }) => return Ok(successors::work(folder, *side)?),
        Some(Part::HeldRound(round)) => return round.run(),
        Some(Part::StepUpRound(round)) => return round.run(),
        Some(Part::PeersWork { file }) => return Ok(beside_peers::work(file)?),
        None => {}
    }
    let measure = |url: &str, quick| match line.held {
        Some(names) => storage::measure_held(url, names.get(), quick),
        None if line.documents => storage::measure_documents(url, quick),
        None => storage::measure(url, quick),
    };
    if let Some(folder) = &line.report {
        return report::page::write(folder, &line.server, line.quick);
    }
    let print = |figures: &[Figure]| print(figures, line.json);
    if let Some(url) = &line.storage {
        return print(&measure(url, line.quick)?);
    }
    if line.server.len() > 1 {
        return Err("several servers are measured for a --report only".into());
    }
    if let Some(server) = line.server.first() {
        let options = [("--quick", line.quick), ("--documents", line.documents), ("--json", line.json)];
        let given = options.iter().filter(|(_, given)| *given).map(|(option, _)| (*option).to_owned());
        let held = line.held.map(|names| format!("--held={names}"));
        let mut options: Vec<String> = given.chain(held).collect();
        match (server, &line.only[..]) {
            (_, []) => {}
            (setup::Server::Postgres, [Measurement::Warm]) => options.push("--only=warm".into()),
            _ => return Err("of measurements, only warm runs on a server, and only on postgres".into()),
        }
        return server.measure(!line.only.is_empty(), line.quick, &options);
    }
    if line.documents || line.held.is_some() {
        return Err("--documents and --held need a storage: --storage URL".into());
    }
    let chosen = if line.only.is_empty() { &Measurement::USUAL[..] } else { &line.only };
    let mut figures = Vec::new();
    for measurement in chosen {
        figures.extend(measurement.run(line.quick)?);
    }
    print(&figures)
}

fn print(figures: &[Figure], as_json: bool) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if as_json { Ok(serde_json::to_writer(out, figures)?) } else { Ok(report::table(&mut out, figures)?) }
}
