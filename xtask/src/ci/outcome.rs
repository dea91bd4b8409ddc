//! What came of each step, and the table of it.

use std::{fmt, time::Duration};

#[derive(Debug)]
pub(super) enum Outcome {
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
pub(super) struct Report(Vec<(String, Outcome)>);

impl Report {
    pub(super) fn add(&mut self, step: String, outcome: Outcome) {
        self.0.push((step, outcome));
    }

    pub(super) fn first_failure(&self) -> Option<&str> {
        let failed = self.0.iter().find(|(_, outcome)| matches!(outcome, Outcome::Failed(..)));
        failed.map(|(step, _)| step.as_str())
    }

    /// Whether every step held; one that was left out counts as such unless `all` were asked for.
    pub(super) fn held(&self, all: bool) -> bool {
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
