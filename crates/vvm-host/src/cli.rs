//! The command line: what there is to say, and what is refused at once.

pub(crate) mod args;
pub(crate) mod duration;
pub(crate) mod exit;

use args::{Cli, Command};
use clap::Parser as _;
use std::process::ExitCode;

/// Reads the command line and does what it says.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refusal) => {
            // Help and version, when asked for, are no errors. Nobody is left to tell that the output is gone.
            let _ = refusal.print();
            return if refusal.use_stderr() { exit::MISUSE.into() } else { ExitCode::SUCCESS };
        }
    };
    match cli.command {
        Command::Run(run) => crate::guardian::main(&run),
        Command::Status(status) => crate::status::main(&status),
        Command::Demo(demo) => crate::demo::main(&demo),
        Command::RunHost(run) => crate::host::main(&run),
        Command::RunWorker(worker) => crate::worker::shim::main(&worker),
        Command::DemoCandidate(candidate) => crate::demo::candidate_main(&candidate),
        Command::DemoWorker(worker) => crate::demo::worker_main(&worker),
    }
}
