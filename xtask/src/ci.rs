//! `cargo xtask ci`: everything that must hold before a change lands, one step after another.
//!
//! What lives here: running the steps and saying what came of each. What they are stands in [`steps`], what
//! they need of the machine in [`needs`], how long they may take in [`limit`], and where they keep their
//! files in [`scratch`]. Nothing is run again because it failed.

pub(crate) mod limit;
pub(crate) mod needs;
mod outcome;
pub(crate) mod scratch;
mod steps;

use crate::{inconclusive::Inconclusive, workspace::Workspace};
use clap::Args;
use outcome::{Outcome, Report};
use vvm_clock::SystemClock;

/// How to run the steps.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run the later steps although an earlier one failed.
    #[arg(long)]
    keep_going: bool,
    /// Fail if a step has to be left out because this machine lacks what it needs, unless that takes very
    /// long to build.
    #[arg(long)]
    all: bool,
}

/// Runs the steps, and prints a summary of all of them; whether every one held that this machine can run, or
/// every single one if all were asked for.
pub(crate) fn run(options: &Options) -> bool {
    let workspace = match Workspace::read() {
        Ok(workspace) => workspace,
        Err(error) => {
            eprintln!("ci: {error}");
            return false;
        }
    };
    let mut inconclusive = match Inconclusive::new() {
        Ok(inconclusive) => inconclusive,
        Err(error) => {
            eprintln!("ci: no folder for inconclusive attempts: {error}");
            return false;
        }
    };
    let steps = steps::all(&workspace);
    let count = steps.len();
    let mut report = Report::default();
    match scratch::place() {
        Some(place) => println!("ci: temporary files are kept in memory, in {place}"),
        None => println!("ci: temporary files are kept in {}", std::env::temp_dir().display()),
    }
    for (index, step) in steps.into_iter().enumerate() {
        if let (Some(failed), false) = (report.first_failure(), options.keep_going) {
            let why = format!("`{failed}` failed before it; `--keep-going` runs it anyway");
            report.add(step.name, Outcome::NotRun(why));
            continue;
        }
        if let Some(need) = step.need
            && let Some(missing) = need.missing()
        {
            let outcome = if need.is_optional() { Outcome::Optional } else { Outcome::LeftOut };
            report.add(step.name, outcome(missing));
            continue;
        }
        println!("==> {}/{count} {}: {}", index + 1, step.name, step.work);
        let start = SystemClock::read();
        let result = step.work.run(&workspace.root, inconclusive.folder());
        let took = SystemClock::read().since(start);
        let collected = inconclusive.collect().map_err(|error| format!("inconclusive attempts: {error}"));
        let outcome = match result.and(collected) {
            Ok(()) => Outcome::Held(took),
            Err(cause) => Outcome::Failed(took, cause),
        };
        println!("<== {}: {outcome}\n", step.name);
        report.add(step.name, outcome);
    }
    print!("{inconclusive}{report}");
    report.held(options.all) && !inconclusive.are_too_many()
}
