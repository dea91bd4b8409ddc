//! `cargo xtask test-drivers`: runs the suites of every driver on real servers, and counts the cases.
#![forbid(unsafe_code)]

mod cases;
mod drivers;

use clap::Parser;
use drivers::Driver;
use servers::cassandra::Plan;
use std::{process::ExitCode, time::Duration};

/// The suites of every driver, on real servers.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask test-drivers")]
struct CommandLine {
    /// Only these drivers, separated by commas; all if not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Driver>,
    /// The number of nodes of a cluster that is started: one, or three that replicate.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u8).range(1..=9))]
    nodes: u8,
    /// How many seconds the last node's clock is ahead of the others. Then only the suite of elections runs.
    /// Needs Debian's package `faketime`.
    #[arg(long, default_value = "0")]
    ahead: u32,
    /// All end-to-end cases on servers, too, not only those that the storage can change.
    #[arg(long)]
    all_cases: bool,
    /// Also on servers that take long to build or to fetch.
    #[arg(long)]
    all_servers: bool,
}

fn main() -> ExitCode {
    let CommandLine { only, nodes, ahead, all_cases, all_servers } = CommandLine::parse();
    let cluster = Plan::of(nodes).with_a_clock_ahead(Duration::from_secs(ahead.into()));
    let all_passed = drivers::run(&only, &cluster, all_cases, all_servers);
    if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
