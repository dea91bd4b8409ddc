//! `cargo xtask test-drivers`: the suites of every driver on the real thing, and how many cases each passed.
//!
//! What lives here: the command line. What doesn't: which driver is run where ([`drivers`]), how the cases
//! are run and counted ([`cases`]), and which of them run processes ([`end_to_end`]).
#![forbid(unsafe_code)]

mod cases;
mod drivers;
mod end_to_end;

use clap::Parser;
use drivers::Driver;
use end_to_end::Selection;
use servers::{cassandra::Plan, owned};
use std::{process::ExitCode, time::Duration};

/// The suites of every driver, on real servers.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask test-drivers")]
struct CommandLine {
    /// Only these, with commas in between; all of them otherwise.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Driver>,
    /// Of how many nodes a cluster is, where one is started: one, or three that replicate.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u8).range(1..=9))]
    nodes: u8,
    /// By how many seconds the last node's clock is ahead of the others: then only fail-over is tried (needs
    /// Debian's package `faketime`).
    #[arg(long, default_value = "0")]
    ahead: u32,
    /// Nothing but these of what is run end to end, with commas in between: `pause,signal_table`.
    #[arg(long, value_name = "TESTS", value_delimiter = ',')]
    end_to_end: Vec<String>,
}

fn main() -> ExitCode {
    if let Some(error) = owned::guard() {
        eprintln!("test-drivers: {error}");
        return ExitCode::FAILURE;
    }
    let CommandLine { only, nodes, ahead, end_to_end } = CommandLine::parse();
    let cluster = Plan::of(nodes).with_a_clock_ahead(Duration::from_secs(ahead.into()));
    let selection = match Selection::of(&end_to_end) {
        Ok(selection) => selection,
        Err(error) => {
            eprintln!("test-drivers: --end-to-end: {error}");
            return ExitCode::FAILURE;
        }
    };
    if drivers::run(&only, &cluster, selection) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
