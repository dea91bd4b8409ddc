//! `cargo xtask test-timed --planted`: whether `timed` tells a slow program from a slow machine.
#![forbid(unsafe_code)]

use clap::Parser;
use std::{process::ExitCode, time::Duration};
use timed::planted::{self, Tally};

/// Deadlines that are missed by 30 %, on the machine as it is and with busy loops on each processor; and a
/// program that keeps its bound on a machine that lets it.
#[derive(Debug, Parser)]
struct CommandLine {
    /// How often each.
    #[arg(long, default_value_t = 20)]
    attempts: usize,
}

const BOUND: Duration = Duration::from_secs(1);

/// Busy loops on each processor.
const LOOPS: usize = 2;

/// How many times what it takes on an idle machine a chain of processes may take.
const PUNCTUAL: f64 = 1.5;

fn main() -> ExitCode {
    let CommandLine { attempts } = CommandLine::parse();
    // Failures are what is looked for; where they happened is not of interest.
    std::panic::set_hook(Box::new(|_| {}));
    let usual = planted::usual(20);
    let said = |what: &str, tally: Tally, holds: bool| {
        println!("{what:48} {tally}{}", if holds { "" } else { "  UNEXPECTED" });
        holds
    };
    let idle = planted::late(attempts, BOUND);
    let idle_holds = said("30 % late, as the machine is", idle, idle.failed == attempts);
    let busy = planted::loaded(LOOPS, || planted::late(attempts, BOUND));
    let busy_holds = said("30 % late, two busy loops per processor", busy, busy.passed == 0);
    println!("a chain of processes takes {usual:?} as the machine is");
    let punctual = planted::loaded(LOOPS, || planted::punctual(attempts, usual, PUNCTUAL));
    let punctual_holds = said("punctual, two busy loops per processor", punctual, punctual.failed == 0);
    if idle_holds && busy_holds && punctual_holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
