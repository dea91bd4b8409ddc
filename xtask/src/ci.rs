//! `cargo xtask ci`: everything that must hold before a change lands, one step after another.
//!
//! What lives here: running the steps and saying what came of each. What they are stands in [`steps`], what they need of
//! the machine in [`needs`], and how long they may take in [`limit`]. Nothing is run again because it failed.

pub(crate) mod limit;
pub(crate) mod needs;
mod steps;

use crate::{
    test_timed::Inconclusive,
    workspace::{self, Workspace},
};
use clap::Args;
use needs::scratch;
use std::{fmt, path::Path, thread, time::Duration};
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
    workspace::holds("ci", run_steps(options))
}

fn run_steps(options: &Options) -> Result<bool, String> {
    let workspace = Workspace::read().map_err(|error| error.to_string())?;
    limit::heed_interrupts().map_err(|error| format!("no handler for signals: {error}"))?;
    let no_folder = |error| format!("no folder for inconclusive attempts: {error}");
    let mut inconclusive = Inconclusive::new().map_err(no_folder)?;
    let groups = chosen(steps::all(&workspace), &options.only)?;
    let mut report = Report::default();
    match scratch() {
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

/// What came of a step.
#[derive(Debug)]
enum Outcome {
    Held(Duration),
    Failed(Duration, String),
    /// With the reason.
    NotRun(String),
    /// With what the machine lacks.
    LeftOut(String),
    /// The same, where that is no failure.
    Optional(String),
}

/// The outcomes in the order of the steps.
#[derive(Debug, Default)]
struct Report(Vec<(String, Outcome)>);

impl Report {
    fn add(&mut self, step: String, outcome: Outcome) {
        self.0.push((step, outcome));
    }

    fn first_failure(&self) -> Option<&str> {
        let failed = self.0.iter().find(|(_, outcome)| matches!(outcome, Outcome::Failed(..)));
        failed.map(|(step, _)| step.as_str())
    }

    /// Whether every step held; one that was left out counts as such unless `all` were asked for.
    fn held(&self, all: bool) -> bool {
        self.0.iter().all(|(_, outcome)| match outcome {
            Outcome::Held(..) | Outcome::Optional(_) => true,
            Outcome::LeftOut(_) => !all,
            Outcome::Failed(..) | Outcome::NotRun(_) => false,
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(took) => write!(out, "ok      {:8.1} s", took.as_secs_f64()),
            Self::Failed(took, cause) => write!(out, "FAILED  {:8.1} s  {cause}", took.as_secs_f64()),
            Self::NotRun(why) => write!(out, "not run: {why}"),
            Self::LeftOut(missing) | Self::Optional(missing) => write!(out, "LEFT OUT: {missing}"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|(step, _)| step.len()).max().unwrap_or(0);
        for (step, outcome) in &self.0 {
            writeln!(out, "{step:width$}  {outcome}")?;
        }
        let count =
            |wanted: fn(&Outcome) -> bool| self.0.iter().filter(|(_, outcome)| wanted(outcome)).count();
        let held = count(|outcome| matches!(outcome, Outcome::Held(..)));
        let failed = count(|outcome| matches!(outcome, Outcome::Failed(..)));
        let left_out = count(|outcome| matches!(outcome, Outcome::LeftOut(_) | Outcome::Optional(_)));
        let not_run = self.0.len() - held - failed - left_out;
        writeln!(out, "ci: {held} held, {failed} failed, {not_run} not run, {left_out} left out")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_did_not_run_is_listed_with_its_reason_and_has_not_held() {
        let mut report = Report::default();
        report.add("fmt".into(), Outcome::Held(Duration::from_millis(400)));
        assert!(report.held(true));
        report.add("tests".into(), Outcome::NotRun("no reason".into()));
        assert!(!report.held(false));
        assert_eq!(report.first_failure(), None);
        assert_eq!(
            report.to_string(),
            "fmt    ok           0.4 s\ntests  not run: no reason\n\
             ci: 1 held, 0 failed, 1 not run, 0 left out\n"
        );
    }

    #[test]
    fn what_the_machine_lacks_is_named_and_fails_only_if_all_were_asked_for() {
        let mut report = Report::default();
        report.add("scylla".into(), Outcome::LeftOut("no JDK".into()));
        assert!(report.held(false));
        assert!(!report.held(true));
        assert_eq!(
            report.to_string(),
            "scylla  LEFT OUT: no JDK\nci: 0 held, 0 failed, 0 not run, 1 left out\n"
        );
        let mut report = Report::default();
        report.add("kubernetes".into(), Outcome::Optional("not built".into()));
        assert!(report.held(true));
    }

    #[test]
    fn the_first_failure_is_the_one_named() {
        let mut report = Report::default();
        report.add("clippy".into(), Outcome::Failed(Duration::ZERO, "exit status: 101".into()));
        report.add("docs".into(), Outcome::Failed(Duration::ZERO, "exit status: 101".into()));
        assert_eq!(report.first_failure(), Some("clippy"));
        assert!(!report.held(false));
    }
}
