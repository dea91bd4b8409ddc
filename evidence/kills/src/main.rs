//! Real processes that are killed, stopped and hung at random, and whether what is promised then holds:
//! [`safety`] of `vvm run`, work that [`resume`]s with the next leader, and jobs that are done [`once`] per period.
#![forbid(unsafe_code)]

mod once;
mod resume;
mod safety;

use clap::Parser;
use std::{error::Error, path::PathBuf, process::ExitCode};

/// Kills real processes, and checks what is promised then.
#[derive(Debug, Parser)]
enum Command {
    /// `vvm run` processes, killed at random: no two workers ever run at once.
    Safety(safety::Args),
    /// Processes that copy a folder together while their leaders are killed: each step counts exactly once.
    Resume(resume::Args),
    /// `vvm once` on three machines, killed at random: each period is done, and not again after it was done.
    Once(once::Args),
    /// The command that `vvm once` starts. Internal.
    #[command(hide = true)]
    Job,
    /// The worker that `vvm run` starts. Internal.
    #[command(hide = true)]
    Work { folder: PathBuf },
}

fn main() -> ExitCode {
    let command = Command::parse();
    let failed = if matches!(command, Command::Job) { once::JOB_FAILED.into() } else { ExitCode::FAILURE };
    match run(command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => failed,
        Err(error) => {
            eprintln!("kills: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<bool, Box<dyn Error>> {
    match command {
        Command::Safety(args) => Ok(safety::run(&args)?),
        Command::Resume(args) => resume::run(&args).map(|()| true),
        Command::Once(args) => once::run(&args),
        Command::Job => once::job(),
        Command::Work { folder } => Ok(safety::work(&folder)?),
    }
}
