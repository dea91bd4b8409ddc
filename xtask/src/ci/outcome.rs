//! What came of each step, and the table of it.

use std::{fmt, time::Duration};

#[derive(Debug)]
pub(super) enum Outcome {
    Held(Duration),
    Failed(Duration, String),
    /// With the reason.
    NotRun(String),
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

    /// A step that did not run has not held.
    pub(super) fn all_held(&self) -> bool {
        self.0.iter().all(|(_, outcome)| matches!(outcome, Outcome::Held(_)))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(took) => write!(out, "ok      {:8.1} s", took.as_secs_f64()),
            Self::Failed(took, cause) => write!(out, "FAILED  {:8.1} s  {cause}", took.as_secs_f64()),
            Self::NotRun(why) => write!(out, "not run: {why}"),
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
        let held = count(|outcome| matches!(outcome, Outcome::Held(_)));
        let failed = count(|outcome| matches!(outcome, Outcome::Failed(..)));
        writeln!(out, "ci: {held} held, {failed} failed, {} not run", self.0.len() - held - failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_did_not_run_is_listed_with_its_reason_and_has_not_held() {
        let mut report = Report::default();
        report.add("fmt".into(), Outcome::Held(Duration::from_millis(400)));
        assert!(report.all_held());
        report.add("tests".into(), Outcome::NotRun("no reason".into()));
        assert!(!report.all_held());
        assert_eq!(report.first_failure(), None);
        assert_eq!(
            report.to_string(),
            "fmt    ok           0.4 s\ntests  not run: no reason\nci: 1 held, 0 failed, 1 not run\n"
        );
    }

    #[test]
    fn the_first_failure_is_the_one_named() {
        let mut report = Report::default();
        report.add("clippy".into(), Outcome::Failed(Duration::ZERO, "exit status: 101".into()));
        report.add("docs".into(), Outcome::Failed(Duration::ZERO, "exit status: 101".into()));
        assert_eq!(report.first_failure(), Some("clippy"));
        assert!(!report.all_held());
    }
}
