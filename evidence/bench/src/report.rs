//! Prints figures as a table or as JSON.

use crate::figure::{Figure, Goal, Side, Statistic, Unit};
use serde::Serialize;
use std::io::{self, Write};

/// Writes a table with a line for each goal of each figure.
pub(crate) fn table(out: &mut impl Write, figures: &[Figure]) -> io::Result<()> {
    let wide = figures.iter().map(|figure| figure.name().chars().count()).max().unwrap_or(0);
    writeln!(out, "{:wide$} {:>11} {:>11} {:>11}  goal", "", "min", "median", "max")?;
    for figure in figures {
        let unit = figure.unit();
        let [min, median, max] = [Statistic::Min, Statistic::Median, Statistic::Max]
            .map(|statistic| unit.written(figure.statistic(statistic)));
        write!(out, "{:wide$} {min:>11} {median:>11} {max:>11}", figure.name())?;
        for (index, goal) in figure.goals().iter().enumerate() {
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
            name: figure.name(),
            unit: figure.unit(),
            min: figure.statistic(Statistic::Min),
            median: figure.statistic(Statistic::Median),
            max: figure.statistic(Statistic::Max),
            samples: figure.samples(),
            goals: figure.goals().iter().map(|&goal| Judged { goal, met: figure.meets(goal) }).collect(),
        }
    }
}

impl Unit {
    fn written(self, number: f64) -> String {
        match self {
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
}
