//! `cargo xtask ci`: everything that must hold before a change lands, one step after another. Nothing is run again
//! because it failed. The list is in [`steps`].

mod steps;

use crate::{
    left_out::LeftOut,
    limit,
    needs::scratch,
    side_by_side::side_by_side,
    test_timed::Inconclusive,
    workspace::{self, Workspace},
};
use clap::Args;
use std::{
    fmt,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use steps::Step;
use vvm_clock::SystemClock;

/// How many steps run at once that mostly wait for servers.
const WAITING_AT_ONCE: usize = 3;

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

/// Whether every step held that this machine can run, or every single one if all were asked for.
pub(crate) fn run(options: &Options) -> bool {
    workspace::holds("ci", run_steps(options))
}

fn run_steps(options: &Options) -> Result<bool, String> {
    let workspace = Workspace::read().map_err(|error| error.to_string())?;
    limit::heed_interrupts().map_err(|error| format!("no handler for signals: {error}"))?;
    let no_folder = |error| format!("no folder for inconclusive attempts: {error}");
    let mut inconclusive = Inconclusive::new().map_err(no_folder)?;
    let steps = chosen(steps::all(&workspace), &options.only)?;
    match scratch() {
        Some(place) => println!("ci: temporary files are kept in memory, in {place}"),
        None => println!("ci: temporary files are kept in {}", std::env::temp_dir().display()),
    }
    let run = Run {
        keep_going: options.keep_going,
        root: &workspace.root,
        records: inconclusive.folder(),
        report: Mutex::default(),
    };
    for steps in steps.chunk_by(|one, next| one.waits && next.waits) {
        side_by_side(steps, WAITING_AT_ONCE, |step| run.carry_out(step, steps.len() == 1));
    }
    let report = run.report.into_inner().unwrap_or_else(PoisonError::into_inner);
    inconclusive.collect().map_err(|error| format!("inconclusive attempts: {error}"))?;
    print!("{inconclusive}{report}");
    Ok(report.held(options.all) && !inconclusive.are_too_many())
}

fn chosen(mut steps: Vec<Step>, only: &[String]) -> Result<Vec<Step>, String> {
    let names: Vec<&str> = steps.iter().map(|step| &*step.name).collect();
    if let Some(unknown) = only.iter().find(|only| !names.contains(&&***only)) {
        return Err(format!("there is no step `{unknown}`; the steps are: {}", names.join(", ")));
    }
    steps.retain(|step| only.is_empty() || only.contains(&step.name));
    Ok(steps)
}

struct Run<'a> {
    keep_going: bool,
    root: &'a Path,
    records: &'a Path,
    report: Mutex<Report>,
}

impl Run<'_> {
    fn carry_out(&self, step: &Step, is_alone: bool) {
        let mut left_out = LeftOut::default();
        let outcome = self.refusal(step).unwrap_or_else(|| {
            println!("==> {}: {}", step.name, step.work);
            let start = SystemClock::read();
            let result = step.work.run(self.root, self.records, is_alone, (&step.name, &mut left_out));
            let took = SystemClock::read().since(start);
            let outcome = match result {
                Ok(()) => Outcome::Held(took),
                Err(cause) => Outcome::Failed(took, cause),
            };
            println!("<== {}: {outcome}\n", step.name);
            outcome
        });
        if let Outcome::LeftOut(why) | Outcome::Optional(why) = &outcome {
            left_out.add(&step.name, why);
        }
        self.report().add(&step.name, outcome, left_out);
    }

    fn refusal(&self, step: &Step) -> Option<Outcome> {
        if limit::is_interrupted() {
            return Some(Outcome::NotRun("interrupted".into()));
        }
        if let (Some(failed), false) = (self.report().first_failure(), self.keep_going) {
            let why = format!("`{failed}` failed before it; `--keep-going` runs it anyway");
            return Some(Outcome::NotRun(why));
        }
        let need = step.need?;
        let missing = need.missing()?;
        Some(if need.is_optional() { Outcome::Optional(missing) } else { Outcome::LeftOut(missing) })
    }

    /// Each change is one step, so poison says nothing here.
    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
enum Outcome {
    Held(Duration),
    Failed(Duration, String),
    NotRun(String),
    LeftOut(String),
    /// The same, where that is no failure.
    Optional(String),
}

#[derive(Debug, Default)]
struct Report {
    outcomes: Vec<(String, Outcome)>,
    left_out: LeftOut,
}

impl Report {
    fn add(&mut self, step: &str, outcome: Outcome, left_out: LeftOut) {
        self.outcomes.push((step.to_owned(), outcome));
        self.left_out.append(left_out);
    }

    fn first_failure(&self) -> Option<&str> {
        let failed = self.outcomes.iter().find(|(_, outcome)| matches!(outcome, Outcome::Failed(..)));
        failed.map(|(step, _)| step.as_str())
    }

    /// Whether every step held; one that was left out counts as such unless `all` were asked for.
    fn held(&self, all: bool) -> bool {
        self.outcomes.iter().all(|(_, outcome)| match outcome {
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
            Self::LeftOut(missing) | Self::Optional(missing) => write!(out, "left out: {missing}"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.outcomes.iter().map(|(step, _)| step.len()).max().unwrap_or(0);
        for (step, outcome) in &self.outcomes {
            writeln!(out, "{step:width$}  {outcome}")?;
        }
        let count = |wanted: fn(&Outcome) -> bool| {
            self.outcomes.iter().filter(|(_, outcome)| wanted(outcome)).count()
        };
        let held = count(|outcome| matches!(outcome, Outcome::Held(..)));
        let failed = count(|outcome| matches!(outcome, Outcome::Failed(..)));
        let left_out = count(|outcome| matches!(outcome, Outcome::LeftOut(_) | Outcome::Optional(_)));
        let not_run = self.outcomes.len() - held - failed - left_out;
        write!(out, "{}", self.left_out)?;
        writeln!(out, "ci: {held} held, {failed} failed, {not_run} not run, {left_out} left out")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: Vec<(&str, Outcome)>) -> Report {
        let mut report = Report::default();
        for (step, outcome) in outcomes {
            report.add(step, outcome, LeftOut::default());
        }
        report
    }

    #[test]
    fn a_step_that_did_not_run_is_listed_with_its_reason_and_has_not_held() {
        let held = || ("fmt", Outcome::Held(Duration::from_millis(400)));
        assert!(report(vec![held()]).held(true));
        let report = report(vec![held(), ("tests", Outcome::NotRun("no reason".into()))]);
        assert!(!report.held(false));
        assert_eq!(report.first_failure(), None);
        assert_eq!(
            report.to_string(),
            "fmt    ok           0.4 s\ntests  not run: no reason\n\
             ci: 1 held, 0 failed, 1 not run, 0 left out\n"
        );
    }

    #[test]
    fn what_was_left_out_stands_in_the_last_lines_and_fails_only_if_all_were_asked_for() {
        let mut left_out = LeftOut::default();
        left_out.add("tests: a::b", "no JDK");
        left_out.add("scylla", "no JDK");
        let mut lacking = Report::default();
        lacking.add("scylla", Outcome::LeftOut("no JDK".into()), left_out);
        assert!(lacking.held(false) && !lacking.held(true));
        assert_eq!(
            lacking.to_string(),
            "scylla  left out: no JDK\nleft out: no JDK\n  scylla\n  tests: a::b\n\
             ci: 0 held, 0 failed, 0 not run, 1 left out\n"
        );
        assert!(report(vec![("kubernetes", Outcome::Optional("not built".into()))]).held(true));
    }

    #[test]
    fn the_first_failure_is_the_one_named() {
        let failed = || Outcome::Failed(Duration::ZERO, "exit status: 101".into());
        let report = report(vec![("clippy", failed()), ("docs", failed())]);
        assert_eq!(report.first_failure(), Some("clippy"));
        assert!(!report.held(false));
    }
}
