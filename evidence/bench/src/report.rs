//! Prints figures as a table or as JSON.

use serde::Serialize;
use std::{
    error::Error,
    io::{self, Write},
};

/// Why there is no figure: the error of what was measured.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// Writes a table with a line for each goal of each figure.
pub(crate) fn table(out: &mut impl Write, figures: &[Figure]) -> io::Result<()> {
    let wide = figures.iter().map(|figure| figure.name.chars().count()).max().unwrap_or(0);
    writeln!(out, "{:wide$} {:>11} {:>11} {:>11}  goal", "", "min", "median", "max")?;
    for figure in figures {
        let unit = figure.unit;
        let [min, median, max] = [Statistic::Min, Statistic::Median, Statistic::Max]
            .map(|statistic| unit.written(figure.statistic(statistic)));
        write!(out, "{:wide$} {min:>11} {median:>11} {max:>11}", &figure.name)?;
        for (index, goal) in figure.goals.iter().enumerate() {
            if index > 0 {
                write!(out, "\n{:wide$} {:>11} {:>11} {:>11}", "", "", "", "")?;
            }
            let verdict = if figure.meets(*goal) { "met" } else { "not met" };
            write!(out, "  {} {} {}: {verdict}", goal.of(), goal.side(), unit.written(goal.bound))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Writes an array of objects.
pub(crate) fn json(out: &mut impl Write, figures: &[Figure]) -> io::Result<()> {
    let lines: Vec<Line<'_>> = figures.iter().map(Line::of).collect();
    serde_json::to_writer_pretty(&mut *out, &lines)?;
    writeln!(out)
}

#[derive(Serialize)]
struct Line<'figure> {
    name: &'figure str,
    unit: Unit,
    min: f64,
    median: f64,
    max: f64,
    samples: &'figure [f64],
    goals: Vec<Judged>,
}

#[derive(Serialize)]
struct Judged {
    #[serde(flatten)]
    goal: Goal,
    met: bool,
}

impl<'figure> Line<'figure> {
    fn of(figure: &'figure Figure) -> Self {
        Self {
            name: &figure.name,
            unit: figure.unit,
            min: figure.statistic(Statistic::Min),
            median: figure.statistic(Statistic::Median),
            max: figure.statistic(Statistic::Max),
            samples: &figure.samples,
            goals: figure.goals.iter().map(|&goal| Judged { goal, met: figure.meets(goal) }).collect(),
        }
    }
}

impl Unit {
    fn written(self, number: f64) -> String {
        match self {
            _ if number.is_infinite() => "never".to_owned(),
            Self::PairsPerSecond | Self::PerSecond => format!("{number:.0}/s"),
            Self::PerMinute => format!("{number:.0}/min"),
            Self::Bytes => format!("{number:.0} B"),
            Self::Megabytes => format!("{number:.2} MB"),
            Self::Microseconds => format!("{number:.2} µs"),
            Self::Milliseconds => format!("{number:.1} ms"),
            Self::Seconds => format!("{number:.2} s"),
            Self::Ratio => format!("{number:.2}"),
            Self::Count => format!("{number:.0}"),
        }
    }
}

impl Goal {
    fn of(&self) -> &'static str {
        match self.of {
            Statistic::Min => "min",
            Statistic::Median => "median",
            Statistic::Max => "max",
        }
    }

    fn side(&self) -> char {
        match self.side {
            Side::AtLeast => '≥',
            Side::AtMost => '≤',
        }
    }
}

/// The unit of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    PairsPerSecond,
    PerSecond,
    PerMinute,
    Bytes,
    Megabytes,
    Microseconds,
    Milliseconds,
    Seconds,
    Ratio,
    Count,
}

/// One quantity, measured more than once.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    name: String,
    unit: Unit,
    /// In ascending order.
    samples: Vec<f64>,
    goals: Vec<Goal>,
}

/// The statistic that is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Statistic {
    Min,
    Median,
    Max,
}

/// Whether a goal is a lower or an upper bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    AtLeast,
    AtMost,
}

/// A bound that a statistic should keep.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Goal {
    of: Statistic,
    side: Side,
    bound: f64,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, unit: Unit, mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self { name: name.into(), unit, samples, goals: Vec::new() }
    }

    /// Infinite if most samples are.
    pub(crate) fn median(&self) -> f64 {
        self.statistic(Statistic::Median)
    }

    #[must_use]
    pub(crate) fn median_at_most(self, bound: f64) -> Self {
        self.with_goal(Statistic::Median, Side::AtMost, bound)
    }

    #[must_use]
    pub(crate) fn median_at_least(self, bound: f64) -> Self {
        self.with_goal(Statistic::Median, Side::AtLeast, bound)
    }

    #[must_use]
    pub(crate) fn max_at_most(self, bound: f64) -> Self {
        self.with_goal(Statistic::Max, Side::AtMost, bound)
    }

    fn with_goal(mut self, of: Statistic, side: Side, bound: f64) -> Self {
        self.goals.push(Goal { of, side, bound });
        self
    }

    /// NaN without a sample, which meets no goal.
    fn statistic(&self, of: Statistic) -> f64 {
        let Some(last) = self.samples.len().checked_sub(1) else { return f64::NAN };
        match of {
            Statistic::Min => self.samples[0],
            Statistic::Median => f64::midpoint(self.samples[last / 2], self.samples[last.div_ceil(2)]),
            Statistic::Max => self.samples[last],
        }
    }

    fn meets(&self, goal: Goal) -> bool {
        let found = self.statistic(goal.of);
        match goal.side {
            Side::AtLeast => found >= goal.bound,
            Side::AtMost => found <= goal.bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Vec<Figure> {
        vec![
            Figure::new("bytes", Unit::Bytes, vec![900.0, 1100.0, 1000.0])
                .with_goal(Statistic::Median, Side::AtMost, 1000.0)
                .with_goal(Statistic::Max, Side::AtMost, 1000.0),
        ]
    }

    #[test]
    fn table_shows_which_goals_are_met() {
        let mut out = Vec::new();
        table(&mut out, &figures()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("median ≤ 1000 B: met"), "{text}");
        assert!(text.contains("max ≤ 1000 B: not met"), "{text}");
    }

    #[test]
    fn json_has_every_sample() {
        let mut out = Vec::new();
        json(&mut out, &figures()).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(read[0]["samples"].as_array().map(Vec::len), Some(3));
        assert_eq!(read[0]["goals"][1]["met"], false);
    }

    fn figure(samples: &[f64]) -> Figure {
        Figure::new("x", Unit::Bytes, samples.to_vec())
    }

    #[test]
    fn median_is_the_middle_sample() {
        assert_eq!(figure(&[3.0, 1.0, 7.0]).statistic(Statistic::Median), 3.0);
        assert_eq!(figure(&[3.0, 1.0, 7.0, 5.0]).statistic(Statistic::Median), 4.0);
        assert_eq!(figure(&[3.0]).statistic(Statistic::Median), 3.0);
    }

    #[test]
    fn goal_is_compared_with_its_statistic() {
        let figure = figure(&[1.0, 2.0, 9.0]);
        let goal = |of, side, bound| Goal { of, side, bound };
        assert!(figure.meets(goal(Statistic::Median, Side::AtMost, 2.0)));
        assert!(!figure.meets(goal(Statistic::Max, Side::AtMost, 2.0)));
        assert!(figure.meets(goal(Statistic::Max, Side::AtLeast, 9.0)));
        assert!(!figure.meets(goal(Statistic::Min, Side::AtLeast, 2.0)));
    }

    #[test]
    fn figure_without_samples_meets_no_goal() {
        let goal = |side| Goal { of: Statistic::Median, side, bound: 0.0 };
        assert!(!figure(&[]).meets(goal(Side::AtLeast)));
        assert!(!figure(&[]).meets(goal(Side::AtMost)));
    }
}
