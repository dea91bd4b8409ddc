//! `cargo xtask test-drivers --faults` and `--story`: elections on real servers that are stopped, killed, cut
//! off and made to answer falsely; and the manual flow of two processes, played by itself.
//!
//! What lives here: the command line. What doesn't: the plot of the story ([`story`]), what goes wrong in a
//! fault run and what must hold in it ([`faults`]), the servers (package `servers`).
#![forbid(unsafe_code)]

mod faults;
mod interruption;
mod place;
mod story;

use clap::{Parser, ValueEnum};
use servers::owned;
use std::{
    env, io,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode},
    time::Duration,
};

/// Elections on servers with faults, and the story of two processes.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask test-drivers")]
struct CommandLine {
    /// Inject faults: servers stopped and killed, connections cut and slowed, answers forged.
    #[arg(long, required_unless_present = "story")]
    faults: bool,
    /// Play the story: two `vvm run` processes take turns, and one of them crashes.
    #[arg(long)]
    story: bool,
    /// Only these, with commas in between; all of them otherwise. The story is always played on SQLite as
    /// well.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Server>,
    /// How long faults are injected on each kind of server, in seconds.
    #[arg(long, default_value_t = faults::WHOLE.as_secs())]
    duration: u64,
    /// The seed of the faults; a random one if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// By how many seconds the clock of one node of Cassandra is ahead of the others', all the while (needs
    /// Debian's package `faketime`).
    #[arg(long, default_value_t = 0, requires = "faults")]
    ahead: u32,
    /// The vvm program; the one beside this program if not given.
    #[arg(long)]
    vvm: Option<PathBuf>,
}

/// A kind of server that is started, and its driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Server {
    /// Apache Cassandra.
    Scylla,
    /// DynamoDB Local.
    Dynamodb,
}

/// DynamoDB Local accepts any, and keeps separate tables for each access key.
const LOCAL_CREDENTIALS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "local"), ("AWS_SECRET_ACCESS_KEY", "local")];

fn main() -> ExitCode {
    if let Some(error) = owned::guard() {
        eprintln!("test-drivers: {error}");
        return ExitCode::FAILURE;
    }
    let CommandLine { faults, story, only, duration, seed, ahead, vvm } = CommandLine::parse();
    let servers = if only.is_empty() { Server::value_variants() } else { &only };
    if servers.contains(&Server::Dynamodb) && !has_local_credentials() {
        eprintln!("test-drivers: {}", with_local_credentials());
        return ExitCode::FAILURE;
    }
    let mut held = true;
    if story {
        held &= report("story", story::play(vvm, servers));
    }
    if faults {
        let whole = faults::Plan {
            duration: Duration::from_secs(duration),
            seed: seed.unwrap_or_else(|| fastrand::u64(..)),
            ahead: Duration::from_secs(ahead.into()),
        };
        for server in servers {
            held &= report(server.name(), faults::run(*server, whole));
        }
    }
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn has_local_credentials() -> bool {
    LOCAL_CREDENTIALS.iter().all(|(name, value)| env::var(name).is_ok_and(|found| found == *value))
}

/// Becomes this program with other credentials in its environment, which it can't change for itself. Returns
/// why it could not.
fn with_local_credentials() -> io::Error {
    match env::current_exe() {
        Ok(program) => Command::new(program).args(env::args_os().skip(1)).envs(LOCAL_CREDENTIALS).exec(),
        Err(error) => error,
    }
}

fn report(what: &str, outcome: Result<(), String>) -> bool {
    if let Err(why) = &outcome {
        eprintln!("{what}: FAILED: {why}");
    }
    outcome.is_ok()
}

impl Server {
    fn name(self) -> &'static str {
        match self {
            Self::Scylla => "scylla",
            Self::Dynamodb => "dynamodb",
        }
    }
}
