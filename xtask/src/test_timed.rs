//! `cargo xtask test-timed`: runs only the tests of real time, repeatedly, if asked with freezes. These are
//! the tests in modules named `timed`.

mod freezer;

use crate::{
    ci::scratch,
    evidence,
    inconclusive::Inconclusive,
    workspace::{Workspace, cargo},
};
use clap::Args;
use freezer::Freezer;
use std::{ffi::OsString, io, process::Command};

/// The options.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often to run all of them.
    #[arg(long, default_value_t = 1, conflicts_with = "planted")]
    repeat: usize,
    /// Freeze all their processes together for 0.5 s, every 5 to 15 s. Needs control groups, version 2.
    #[arg(long, conflicts_with = "planted")]
    freeze: bool,
    /// Miss deadlines on purpose instead, on this machine as it is and with two busy loops per processor.
    #[arg(long)]
    planted: bool,
    /// How often each deadline is missed.
    #[arg(long, requires = "planted", default_value_t = 20)]
    attempts: usize,
}

/// Runs them. Returns whether none failed and few enough were inconclusive.
pub(crate) fn run(options: &Options) -> bool {
    if options.planted {
        let attempts = ["--attempts".into(), OsString::from(options.attempts.to_string())];
        return evidence::run_plain("timed", &attempts);
    }
    match repeat(options) {
        Ok(held) => held,
        Err(error) => {
            eprintln!("test-timed: {error}");
            false
        }
    }
}

fn repeat(options: &Options) -> Result<bool, String> {
    let workspace = Workspace::read().map_err(|error| error.to_string())?;
    let system = |error: io::Error| error.to_string();
    let freezer = options
        .freeze
        .then(Freezer::new)
        .transpose()
        .map_err(|error| format!("--freeze: no control group (version 2) can be made here: {error}"))?;
    let mut held = 0;
    for number in 1..=options.repeat {
        let mut inconclusive = Inconclusive::new().map_err(system)?;
        let tests = ["test", "--workspace", "--all-features", "--tests", "--no-fail-fast", "--quiet"];
        let mut command = freezer.as_ref().map_or_else(cargo, |freezer| freezer.enter(&cargo()));
        command.envs(scratch::place().map(|place| (scratch::VARIABLE, place)));
        command.args(tests).args(["--", "timed::"]).env(timed::records::FOLDER, inconclusive.folder());
        let status = status(command.current_dir(&workspace.root), freezer.as_ref()).map_err(system)?;
        inconclusive.collect().map_err(system)?;
        // Freezes make many attempts inconclusive, as intended.
        let holds = status && (options.freeze || !inconclusive.are_too_many());
        held += usize::from(holds);
        println!("{inconclusive}run {number}: {}", if holds { "held" } else { "FAILED" });
    }
    println!("test-timed: {held} of {} runs held", options.repeat);
    Ok(held == options.repeat)
}

fn status(command: &mut Command, freezer: Option<&Freezer>) -> io::Result<bool> {
    let mut child = command.spawn()?;
    let ended = loop {
        match freezer {
            None => break child.wait(),
            Some(freezer) => {
                if let Some(status) = child.try_wait()? {
                    break Ok(status);
                }
                freezer.freeze_now_and_then()?;
            }
        }
    };
    Ok(ended?.success())
}
