//! `cargo xtask test-drivers --faults`: elections on real servers with faults ([`faults`]). `--histories`: recorded
//! calls on every storage, and their check ([`faults::histories`]). Package `servers` starts the servers.
#![forbid(unsafe_code)]

mod faults;

use clap::{Parser, ValueEnum};
use faults::histories;
use servers::objects::CREDENTIALS;
use std::{
    env, io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
    time::Duration,
};

/// Storages with faults: elections on servers, or recorded histories.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask test-drivers")]
struct CommandLine {
    /// Injects faults while candidates contend: stops and kills servers, cuts and slows connections, forges answers.
    #[arg(long, required_unless_present = "histories")]
    faults: bool,
    /// Records what clients ask and are answered under such faults, and checks the history with porcupine. Needs Go.
    #[arg(long, conflicts_with_all = ["faults", "fail_overs"])]
    histories: bool,
    /// Only these storages, separated by commas; default all.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Storage>,
    /// The duration of the faults on each storage, in seconds. The default is 600, and 120 of a history.
    #[arg(long)]
    duration: Option<u64>,
    /// The seed of the faults. The default is random.
    #[arg(long)]
    seed: Option<u64>,
    /// Only fail-overs, each kind so many times. PostgreSQL and MariaDB have them.
    #[arg(long)]
    fail_overs: Option<u32>,
}

/// A storage, and its driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Storage {
    /// This process's memory; has histories only.
    Mem,
    /// A file; has histories only.
    Sqlite,
    /// A folder; has histories only.
    Sled,
    /// Apache Cassandra.
    Scylla,
    /// DynamoDB Local.
    Dynamodb,
    /// etcd, three members.
    Etcd,
    /// kube-apiserver, which must have been built.
    Kubernetes,
    /// MariaDB with a replica.
    Mysql,
    /// PostgreSQL with a standby.
    Postgres,
    /// versitygw.
    S3,
}

fn main() -> ExitCode {
    let CommandLine { faults: _, histories, only, duration, seed, fail_overs } = CommandLine::parse();
    let default = if histories { histories::DEFAULT_DURATION } else { faults::DEFAULT_DURATION };
    let duration = duration.map_or(default, Duration::from_secs);
    let storages: Vec<Storage> = match only.is_empty() {
        true => {
            Storage::value_variants().iter().copied().filter(|one| histories || one.is_server()).collect()
        }
        false => only,
    };
    if !has_local_credentials() {
        eprintln!("test-drivers: {}", with_local_credentials());
        return ExitCode::FAILURE;
    }
    let mut held = true;
    for storage in storages {
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        let ran = if histories {
            histories::run(storage, duration, seed)
        } else {
            faults::run(storage, faults::Plan { duration, seed, fail_overs })
        };
        if let Err(why) = ran {
            eprintln!("{}: FAILED: {why}", storage.name());
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

impl Storage {
    /// Whether it is a server, on which candidates can contend under faults.
    fn is_server(self) -> bool {
        !matches!(self, Self::Mem | Self::Sqlite | Self::Sled)
    }

    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
