//! The project's own commands, `cargo xtask …`: what the workflow file and `.ci/run` call, so that nothing is checked
//! there that a person can't check here.
//!
//! What lives here: the command line. What doesn't: what a command does ([`ci`], [`tidy`]).
#![forbid(unsafe_code)]

mod ci;
mod tidy;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The project's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything that must hold before a change lands: format, lints, tidy, docs, single features, all tests.
    Ci(ci::Options),
    /// The rules of the house that no compiler knows: arrows between crates, who reads time, and the like.
    Tidy,
}

fn main() -> ExitCode {
    let done = match CommandLine::parse().command {
        Command::Ci(options) => ci::run(&options),
        Command::Tidy => tidy::run(),
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
