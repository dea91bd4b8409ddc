//! A line of the table: the measurements of each program.

use super::ComparedProgram;
use serde::Serialize;
use std::{io, time::Duration};

/// A quantity measured of each program; less is better.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    what: &'static str,
    unit: &'static str,
    columns: Vec<Column>,
    /// Why ours is more, if it is.
    #[serde(skip)]
    if_behind: &'static str,
}

/// The measurements of one program.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Column {
    program: String,
    #[serde(skip)]
    is_ours: bool,
    samples: Vec<Sample>,
}

/// One measurement; `None` if the event never happened.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Serialize)]
pub(crate) struct Sample(pub(crate) Option<f64>);

impl Sample {
    pub(crate) fn of(took: Option<Duration>) -> Self {
        Self(took.map(|took| took.as_secs_f64()))
    }

    /// Infinite if there is none.
    fn number(self) -> f64 {
        self.0.unwrap_or(f64::INFINITY)
    }
}

impl Column {
    pub(crate) fn of(program: &ComparedProgram, samples: Vec<Sample>) -> Self {
        Self::new(program.title().to_owned(), program.is_ours(), samples)
    }

    fn new(program: String, is_ours: bool, mut samples: Vec<Sample>) -> Self {
        samples.sort_by(|one, other| one.number().total_cmp(&other.number()));
        Self { program, is_ours, samples }
    }

    fn median(&self) -> f64 {
        self.samples.get(self.samples.len() / 2).map_or(f64::NAN, |one| one.number())
    }

    fn cell(&self, unit: &str) -> String {
        let number = |sample: Option<&Sample>| match sample.and_then(|sample| sample.0) {
            Some(number) if unit.is_empty() => format!("{number:.0}"),
            Some(number) => format!("{number:.2}"),
            None => "never".to_owned(),
        };
        match &*self.samples {
            [one] => format!("{} {unit}", number(Some(one))),
            all => format!("{} / {} {unit}", number(all.get(all.len() / 2)), number(all.last())),
        }
    }
}

impl Comparison {
    pub(crate) fn new(
        what: &'static str,
        unit: &'static str,
        columns: Vec<Column>,
        if_behind: &'static str,
    ) -> Self {
        Self { what, unit, columns, if_behind }
    }

    /// Compares our slowest with the fastest of the others.
    fn verdict(&self) -> String {
        let medians =
            |is_ours| self.columns.iter().filter(move |column| column.is_ours == is_ours).map(Column::median);
        let theirs = medians(false).fold(f64::INFINITY, f64::min);
        let ours = medians(true).fold(0.0, f64::max);
        if ours < theirs {
            "ahead".to_owned()
        } else if ours == theirs {
            "equal".to_owned()
        } else {
            format!("behind, because {}", self.if_behind)
        }
    }
}

/// For people: median and maximum of each.
pub(crate) fn table(out: &mut impl io::Write, ttl: Duration, comparisons: &[Comparison]) -> io::Result<()> {
    let titles = comparisons.first().into_iter().flat_map(|first| &first.columns);
    let mut lines: Vec<Vec<String>> = vec![
        [format!("TTL {} s; median / maximum", ttl.as_secs())]
            .into_iter()
            .chain(titles.map(|column| column.program.clone()))
            .chain(["vvm is".to_owned()])
            .collect(),
    ];
    lines.extend(comparisons.iter().map(|comparison| {
        let cells = comparison.columns.iter().map(|column| column.cell(comparison.unit));
        [comparison.what.to_owned()].into_iter().chain(cells).chain([comparison.verdict()]).collect()
    }));
    let columns = lines.first().map_or(0, Vec::len);
    let wide: Vec<usize> = (0..columns)
        .map(|column| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max())
        .map(Option::unwrap_or_default)
        .collect();
    for line in &lines {
        for (column, (cell, wide)) in line.iter().zip(&wide).enumerate() {
            match column {
                0 => write!(out, "{cell:wide$}")?,
                last if last + 1 == columns => write!(out, "  {cell}")?,
                _ => write!(out, "  {cell:>wide$}")?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// For programs: every sample.
pub(crate) fn json(out: &mut impl io::Write, comparisons: &[Comparison]) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, comparisons)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(is_ours: bool, samples: &[Option<f64>]) -> Column {
        Column::new("x".into(), is_ours, samples.iter().copied().map(Sample).collect())
    }

    fn verdict(columns: Vec<Column>) -> String {
        Comparison::new("x", "s", columns, "of this").verdict()
    }

    #[test]
    fn smaller_value_is_ahead_and_a_missing_event_is_last() {
        let (theirs, ours) =
            (column(false, &[None, Some(4.0), None]), column(true, &[Some(3.0), Some(1.0), Some(2.0)]));
        assert_eq!(theirs.cell("s"), "never / never s");
        assert_eq!(ours.cell("s"), "2.00 / 3.00 s");
        assert_eq!(verdict(vec![theirs, ours]), "ahead");
        assert_eq!(verdict(vec![column(false, &[None]), column(true, &[None])]), "equal");
    }

    #[test]
    fn our_slowest_is_compared_with_the_fastest_of_the_others() {
        let two = |ours, theirs| {
            verdict(vec![
                column(false, &[Some(theirs)]),
                column(true, &[Some(1.0)]),
                column(false, &[Some(9.0)]),
                column(true, &[Some(ours)]),
            ])
        };
        assert_eq!(two(2.0, 3.0), "ahead");
        assert_eq!(two(4.0, 3.0), "behind, because of this");
    }
}
