//! `cargo xtask test-drivers --faults`: elections on real servers with faults ([`faults`]). Package `servers`
//! starts the servers.
#![forbid(unsafe_code)]

mod faults;

use clap::{Parser, ValueEnum};
use servers::{objects::CREDENTIALS, owned};
use std::{
    env, io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
    time::Duration,
};

/// Elections on servers with faults.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask test-drivers")]
struct CommandLine {
    /// Injects faults: stops and kills servers, cuts and slows connections, forges answers.
    #[arg(long, required = true)]
    faults: bool,
    /// Only these servers, separated by commas; default all.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Server>,
    /// The duration of the faults on each kind of server, in seconds.
    #[arg(long, default_value_t = faults::DEFAULT_DURATION.as_secs())]
    duration: u64,
    /// The seed of the faults. The default is random.
    #[arg(long)]
    seed: Option<u64>,
    /// How many seconds the clock of one Cassandra node is ahead of the others. Needs Debian's package
    /// `faketime`.
    #[arg(long, default_value_t = 0)]
    ahead: u32,
    /// Only fail-overs, each kind so many times. PostgreSQL has them.
    #[arg(long)]
    fail_overs: Option<u32>,
}

/// A kind of server, and its driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Server {
    /// Apache Cassandra.
    Scylla,
    /// DynamoDB Local.
    Dynamodb,
    /// etcd, three members.
    Etcd,
    /// kube-apiserver, which must have been built.
    Kubernetes,
    /// PostgreSQL with a standby.
    Postgres,
    /// versitygw.
    S3,
}

fn main() -> ExitCode {
    if let Some(error) = owned::guard() {
        eprintln!("test-drivers: {error}");
        return ExitCode::FAILURE;
    }
    let CommandLine { faults: _, only, duration, seed, ahead, fail_overs } = CommandLine::parse();
    let servers = if only.is_empty() { Server::value_variants() } else { &only };
    if !has_local_credentials() {
        eprintln!("test-drivers: {}", with_local_credentials());
        return ExitCode::FAILURE;
    }
    let plan = faults::Plan {
        duration: Duration::from_secs(duration),
        seed: seed.unwrap_or_else(|| fastrand::u64(..)),
        ahead: Duration::from_secs(ahead.into()),
        fail_overs,
    };
    let mut held = true;
    for server in servers {
        if let Err(why) = faults::run(*server, plan) {
            eprintln!("{}: FAILED: {why}", server.name());
            held = false;
        }
    }
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// DynamoDB Local accepts any credentials, and keeps separate tables for each access key.
fn has_local_credentials() -> bool {
    CREDENTIALS.iter().all(|(name, value)| env::var(name).is_ok_and(|found| found == *value))
}

/// Executes this program again with these credentials: a program can't safely change its own environment.
/// Returns only an error.
fn with_local_credentials() -> io::Error {
    match env::current_exe() {
        Ok(program) => Command::new(program).args(env::args_os().skip(1)).envs(CREDENTIALS).exec(),
        Err(error) => error,
    }
}

impl Server {
    fn name(self) -> &'static str {
        match self {
            Self::Scylla => "scylla",
            Self::Dynamodb => "dynamodb",
            Self::Etcd => "etcd",
            Self::Kubernetes => "kubernetes",
            Self::Postgres => "postgres",
            Self::S3 => "s3",
        }
    }
}
