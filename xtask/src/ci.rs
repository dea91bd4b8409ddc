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
mod test_programs;

use crate::{inconclusive::Inconclusive, workspace::Workspace};
use clap::Args;
use outcome::{Outcome, Report};
use std::{path::Path, thread};
use steps::Step;
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
    /// Only these steps, by the names of the last table, separated by commas.
    #[arg(long, value_name = "STEPS", value_delimiter = ',')]
    only: Vec<String>,
}

/// Runs the steps, and prints a summary of all of them; whether every one held that this machine can run, or
/// every single one if all were asked for.
pub(crate) fn run(options: &Options) -> bool {
    match run_steps(options) {
        Ok(held) => held,
        Err(error) => {
            eprintln!("ci: {error}");
            false
        }
    }
}

fn run_steps(options: &Options) -> Result<bool, String> {
    let workspace = Workspace::read().map_err(|error| error.to_string())?;
    limit::heed_interrupts().map_err(|error| format!("no handler for signals: {error}"))?;
    let no_folder = |error| format!("no folder for inconclusive attempts: {error}");
    let mut inconclusive = Inconclusive::new().map_err(no_folder)?;
    let groups = chosen(steps::all(&workspace), &options.only)?;
    let mut report = Report::default();
    match scratch::place() {
        Some(place) => println!("ci: temporary files are kept in memory, in {place}"),
        None => println!("ci: temporary files are kept in {}", std::env::temp_dir().display()),
    }
    for group in groups {
        let mut runnable = Vec::new();
        for step in group {
            let missing = step.need.and_then(|need| Some((need, need.missing()?)));
            if limit::is_interrupted() {
                report.add(step.name, Outcome::NotRun("interrupted".into()));
            } else if let (Some(failed), false) = (report.first_failure(), options.keep_going) {
                let why = format!("`{failed}` failed before it; `--keep-going` runs it anyway");
                report.add(step.name, Outcome::NotRun(why));
            } else if let Some((need, missing)) = missing {
                let outcome = if need.is_optional() { Outcome::Optional } else { Outcome::LeftOut };
                report.add(step.name, outcome(missing));
            } else {
                println!("==> {}: {}", step.name, step.work);
                runnable.push(step);
            }
        }
        let outcomes = run_at_once(&runnable, &workspace.root, inconclusive.folder());
        let collected = inconclusive.collect().map_err(|error| format!("inconclusive attempts: {error}"));
        for (step, outcome) in runnable.into_iter().zip(outcomes) {
            println!("<== {}: {outcome}\n", step.name);
            report.add(step.name, outcome);
        }
        collected?;
    }
    print!("{inconclusive}{report}");
    Ok(report.held(options.all) && !inconclusive.are_too_many())
}

/// Keeps the steps in `only`, or all if it is empty.
///
/// # Errors
/// There is no step of such a name.
fn chosen(mut groups: Vec<Vec<Step>>, only: &[String]) -> Result<Vec<Vec<Step>>, String> {
    let names: Vec<&str> = groups.iter().flatten().map(|step| &*step.name).collect();
    if let Some(unknown) = only.iter().find(|only| !names.contains(&&***only)) {
        return Err(format!("there is no step `{unknown}`; the steps are: {}", names.join(", ")));
    }
    if !only.is_empty() {
        groups.iter_mut().for_each(|group| group.retain(|step| only.contains(&step.name)));
    }
    Ok(groups)
}

/// Runs `steps` side by side.
fn run_at_once(steps: &[Step], root: &Path, records: &Path) -> Vec<Outcome> {
    let is_alone = steps.len() == 1;
    thread::scope(|scope| {
        let carry_out = |step: &Step| {
            let start = SystemClock::read();
            let result = step.work.run(root, records, is_alone);
            let took = SystemClock::read().since(start);
            match result {
                Ok(()) => Outcome::Held(took),
                Err(cause) => Outcome::Failed(took, cause),
            }
        };
        let begun: Vec<_> = steps.iter().map(|step| scope.spawn(move || carry_out(step))).collect();
        let panicked = |_| Outcome::Failed(Default::default(), "panicked".into());
        begun.into_iter().map(|step| step.join().unwrap_or_else(panicked)).collect()
    })
}
