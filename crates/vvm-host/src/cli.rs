//! The command line: what there is to say, and what is refused at once.

pub(crate) mod args;
pub(crate) mod duration;
pub(crate) mod exit;

use crate::announce::say;
use args::{Cli, Command};
use clap::{Parser as _, error::ErrorKind};
use std::process::ExitCode;

/// Reads the command line and does what it says.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refusal) => {
            // Help and version, when asked for, are no errors. Nobody is left to tell that the output is gone.
            let _ = refusal.print();
            let mut words = std::env::args_os().skip(1);
            let is_run = words.next().is_some_and(|command| command == "run");
            if is_run && refusal.kind() == ErrorKind::UnknownArgument && !words.any(|word| word == "--") {
                say!("the command to run stands behind --, as in: vvm run … -- CMD ARGS…");
            }
            return if refusal.use_stderr() { exit::MISUSE.into() } else { ExitCode::SUCCESS };
        }
    };
    match cli.command {
        Command::Run(run) => crate::guardian::main(&run),
        Command::Status(status) => crate::status::main(&status),
        Command::Demo(demo) => crate::demo::main(&demo),
        Command::InitStorage(init) => crate::init_storage::main(&init),
        Command::DemoCandidate(candidate) => crate::demo::candidate_main(&candidate),
        Command::DemoWorker(worker) => crate::demo::worker_main(&worker),
        Command::StageHost(run) => crate::host::main(&run),
        Command::StageNamespace(worker) => crate::namespace::outside::main(&worker),
        Command::StageInit(worker) => crate::namespace::init::main(&worker),
        Command::StageWorker(worker) => crate::worker::shim::main(&worker),
    }
}
