//! `cargo xtask test-drivers --story`: the manual flow of two processes, played by itself on real servers.
//!
//! What lives here: the command line. What doesn't: the plot ([`story`]), the servers (package `servers`).
#![forbid(unsafe_code)]

mod interruption;
mod place;
mod story;

use clap::{Parser, ValueEnum};
use servers::owned;
use std::{env, path::PathBuf, process::ExitCode};

/// The story of two processes.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask test-drivers")]
struct CommandLine {
    /// Play the story: two `vvm run` processes take turns, and one of them crashes.
    #[arg(long, required = true)]
    story: bool,
    /// Only these, with commas in between; all of them otherwise. The story is always played on SQLite as well.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Server>,
    /// The vvm program; the one beside this program if not given.
    #[arg(long)]
    vvm: Option<PathBuf>,
}

/// A kind of server that is started, and its driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Server {
    /// Apache Cassandra.
    Scylla,
}

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    if env::args_os().nth(1).is_some_and(|first| first == owned::GUARD) {
        let error = owned::become_command(arguments.by_ref().skip(1));
        eprintln!("test-drivers: {error}");
        return ExitCode::FAILURE;
    }
    let CommandLine { only, vvm, .. } = CommandLine::parse();
    let servers = if only.is_empty() { Server::value_variants() } else { &only };
    match story::play(vvm, servers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("story: FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}
