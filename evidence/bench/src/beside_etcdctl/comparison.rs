//! A line of the table: the measurements of both, and their ratio.

use super::compared_program::ComparedProgram;
use serde::Serialize;
use std::{io, time::Duration};

/// A quantity measured of both; less is better.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    what: &'static str,
    unit: &'static str,
    theirs: Vec<Sample>,
    ours: Vec<Sample>,
    /// Why ours is more, if it is.
    #[serde(skip)]
    if_behind: &'static str,
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

impl Comparison {
    pub(crate) fn new(
        what: &'static str,
        unit: &'static str,
        mut theirs: Vec<Sample>,
        mut ours: Vec<Sample>,
        if_behind: &'static str,
    ) -> Self {
        for samples in [&mut theirs, &mut ours] {
            samples.sort_by(|one, other| one.number().total_cmp(&other.number()));
        }
        Self { what, unit, theirs, ours, if_behind }
    }

    pub(crate) fn seconds(
        what: &'static str,
        theirs: Vec<Sample>,
        ours: Vec<Sample>,
        if_behind: &'static str,
    ) -> Self {
        Self::new(what, "s", theirs, ours, if_behind)
    }

    /// In how many trials the old command still ran.
    pub(crate) fn trials(what: &'static str, theirs: usize, ours: usize) -> Self {
        let one = |count: usize| vec![Sample(Some(count as f64))];
        Self::new(what, "", one(theirs), one(ours), "of a bug: report it")
    }

    fn medians(&self) -> (f64, f64) {
        let median = |samples: &[Sample]| samples.get(samples.len() / 2).map_or(f64::NAN, |one| one.number());
        (median(&self.theirs), median(&self.ours))
    }

    fn cell(&self, samples: &[Sample]) -> String {
        let number = |sample: Option<&Sample>| match sample.and_then(|sample| sample.0) {
            Some(number) if self.unit.is_empty() => format!("{number:.0}"),
            Some(number) => format!("{number:.2}"),
            None => "never".to_owned(),
        };
        match samples {
            [one] => format!("{} {}", number(Some(one)), self.unit),
            all => format!("{} / {} {}", number(all.get(all.len() / 2)), number(all.last()), self.unit),
        }
    }

    /// Ours divided by theirs; `None` if either has no number.
    fn ratio(&self) -> String {
        let (theirs, ours) = self.medians();
        if theirs.is_finite() && ours.is_finite() && theirs > 0.0 && !self.unit.is_empty() {
            format!("{:.2}", ours / theirs)
        } else {
            String::new()
        }
    }

    fn verdict(&self) -> String {
        let (theirs, ours) = self.medians();
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
pub(crate) fn table(
    out: &mut impl io::Write,
    theirs: &ComparedProgram,
    ours: &ComparedProgram,
    comparisons: &[Comparison],
) -> io::Result<()> {
    let mut lines = vec![[
        "TTL 5 s; median / maximum".to_owned(),
        theirs.title().to_owned(),
        ours.title().to_owned(),
        "ratio".to_owned(),
        "vvm is".to_owned(),
    ]];
    lines.extend(comparisons.iter().map(|comparison| {
        let (theirs, ours) = (comparison.cell(&comparison.theirs), comparison.cell(&comparison.ours));
        [comparison.what.to_owned(), theirs, ours, comparison.ratio(), comparison.verdict()]
    }));
    let wide = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let [what, theirs, ours, ratio, _] = [0, 1, 2, 3, 4].map(wide);
    for [title, one, other, by, verdict] in &lines {
        writeln!(out, "{title:what$}  {one:>theirs$}  {other:>ours$}  {by:>ratio$}  {verdict}")?;
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

    fn compared(theirs: &[Option<f64>], ours: &[Option<f64>]) -> Comparison {
        let samples = |of: &[Option<f64>]| of.iter().copied().map(Sample).collect();
        Comparison::seconds("x", samples(theirs), samples(ours), "of this")
    }

    #[test]
    fn smaller_value_is_ahead_and_a_missing_event_is_last() {
        let comparison = compared(&[None, Some(4.0), None], &[Some(3.0), Some(1.0), Some(2.0)]);
        assert_eq!((comparison.verdict(), comparison.ratio()), ("ahead".into(), String::new()));
        assert_eq!(comparison.cell(&comparison.theirs), "never / never s");
        assert_eq!(comparison.cell(&comparison.ours), "2.00 / 3.00 s");
        let comparison = compared(&[Some(1.0)], &[Some(2.0)]);
        assert_eq!(
            (comparison.verdict(), comparison.ratio()),
            ("behind, because of this".into(), "2.00".into())
        );
        assert_eq!(compared(&[None], &[None]).verdict(), "equal");
    }
}
