//! `cargo xtask test-timed --planted`: whether `timed` tells a slow program from a slow machine.
#![forbid(unsafe_code)]

use clap::Parser;
use std::{process::ExitCode, time::Duration};
use timed::planted::{self, Tally};

/// Misses deadlines by 30 %, on the machine as it is and with busy loops on each processor. Then runs a
/// punctual program beside the busy loops.
#[derive(Debug, Parser)]
struct CommandLine {
    /// How many attempts each.
    #[arg(long, default_value_t = 20)]
    attempts: usize,
    /// One attempt each, on a machine that may be busy: only a missed deadline that passes is a failure.
    #[arg(long, conflicts_with = "attempts")]
    quick: bool,
}

const BOUND: Duration = Duration::from_secs(1);

/// Busy loops on each processor.
const LOOPS: usize = 2;

/// The bound of a chain of processes, in multiples of its time on an idle machine.
const PUNCTUAL: f64 = 1.5;

fn main() -> ExitCode {
    let CommandLine { attempts, quick } = CommandLine::parse();
    let attempts = if quick { 1 } else { attempts };
    // Failures are expected: don't print them.
    std::panic::set_hook(Box::new(|_| {}));
    let usual = planted::usual(20);
    let report = |what: &str, tally: Tally, holds: bool| {
        println!("{what:48} {tally}{}", if holds { "" } else { "  UNEXPECTED" });
        holds
    };
    let idle = planted::late(attempts, BOUND);
    let idle_holds = report(
        "30 % late, as the machine is",
        idle,
        if quick { idle.passed == 0 } else { idle.failed == attempts },
    );
    let busy = planted::loaded(LOOPS, || planted::late(attempts, BOUND));
    let busy_holds = report("30 % late, two busy loops per processor", busy, busy.passed == 0);
    println!("a chain of processes takes {:.1} ms as the machine is", usual.as_secs_f64() * 1e3);
    let punctual = planted::loaded(LOOPS, || planted::punctual(attempts, usual, PUNCTUAL));
    let punctual_holds =
        report("punctual, two busy loops per processor", punctual, quick || punctual.failed == 0);
    if idle_holds && busy_holds && punctual_holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
