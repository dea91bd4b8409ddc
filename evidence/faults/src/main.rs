//! `cargo xtask test-drivers --histories`: recorded calls on every storage under faults, and their check
//! ([`faults::histories`]). `--faults`: elections during what no history can judge, such as fail-overs that lose writes
//! ([`faults`]). Package `servers` starts the servers.
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

/// Storages with faults: recorded histories, or elections on servers.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask test-drivers")]
struct CommandLine {
    /// Lets candidates contend during fail-overs, switches back, restores, and deletions by hand. PostgreSQL, MariaDB,
    /// object stores and Kubernetes have them.
    #[arg(long, required_unless_present = "histories", conflicts_with = "duration")]
    faults: bool,
    /// Records what clients ask and are answered while servers stop and messages are delayed, lost, cut and repeated,
    /// and checks the history with porcupine. Needs Go.
    #[arg(long, conflicts_with_all = ["faults", "rounds"])]
    histories: bool,
    /// Only these storages, separated by commas; default all.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Storage>,
    /// The duration of a history on each storage, in seconds.
    #[arg(long, default_value_t = 120)]
    duration: u64,
    /// How often each kind of fault comes.
    #[arg(long, default_value_t = faults::DEFAULT_ROUNDS)]
    rounds: u32,
    /// The seed of the faults. The default is random.
    #[arg(long)]
    seed: Option<u64>,
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
    let CommandLine { faults: _, histories, only, duration, rounds, seed } = CommandLine::parse();
    let storages: &[Storage] = match (&only[..], histories) {
        ([], true) => Storage::value_variants(),
        ([], false) => &[Storage::Postgres, Storage::Mysql, Storage::S3, Storage::Kubernetes],
        (only, _) => only,
    };
    if !has_local_credentials() {
        eprintln!("test-drivers: {}", with_local_credentials());
        return ExitCode::FAILURE;
    }
    let mut held = true;
    for &storage in storages {
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        let ran = if histories {
            histories::run(storage, Duration::from_secs(duration), seed)
        } else {
            faults::run(storage, rounds, seed)
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

/// Executes this program again with these credentials: it can't safely change its environment. Returns an error.
fn with_local_credentials() -> io::Error {
    match env::current_exe() {
        Ok(program) => Command::new(program).args(env::args_os().skip(1)).envs(CREDENTIALS).exec(),
        Err(error) => error,
    }
}

impl Storage {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
