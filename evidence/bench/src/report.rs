pub(crate) mod page;

use serde::{Deserialize, Deserializer, Serialize};
use std::{
    error::Error,
    io::{self, Write},
};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

pub(crate) fn table(out: &mut impl Write, figures: &[Figure]) -> io::Result<()> {
    let wide = figures.iter().map(|figure| figure.name.chars().count()).max().unwrap_or(0);
    writeln!(out, "{:wide$} {:>11} {:>11} {:>11}", "", "min", "median", "max")?;
    for Figure { name, unit, min, median, max } in figures {
        let [min, median, max] = [min, median, max].map(|number| unit.written(*number));
        writeln!(out, "{name:wide$} {min:>11} {median:>11} {max:>11}")?;
    }
    Ok(())
}

/// One quantity, measured more than once. Its statistics are NaN without a sample.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    name: String,
    unit: Unit,
    #[serde(deserialize_with = "or_nan")]
    min: f64,
    #[serde(deserialize_with = "or_nan")]
    median: f64,
    #[serde(deserialize_with = "or_nan")]
    max: f64,
}

/// JSON has no NaN.
fn or_nan<'de, From: Deserializer<'de>>(from: From) -> Result<f64, From::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, unit: Unit, mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let last = samples.len().saturating_sub(1);
        let at = |place: usize| samples.get(place).copied().unwrap_or(f64::NAN);
        let (min, max) = (at(0), at(last));
        let median = f64::midpoint(at(last / 2), at(last.div_ceil(2)));
        Self { name: name.into(), unit, min, median, max }
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
            Self::Percent => format!("{number:.2} %"),
            Self::Count => format!("{number:.0}"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
    /// Of one core.
    Percent,
    Count,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_sample() {
        let median = |samples: &[f64]| Figure::new("x", Unit::Bytes, samples.to_vec()).median;
        assert_eq!([&[3.0, 1.0, 7.0][..], &[3.0, 1.0, 7.0, 5.0], &[3.0]].map(median), [3.0, 4.0, 3.0]);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn table_has_the_statistics() {
        let figures = [Figure::new("x", Unit::Seconds, vec![f64::INFINITY, 1.0, 2.0])];
        let mut shown = Vec::new();
        table(&mut shown, &figures).unwrap();
        let shown = String::from_utf8(shown).unwrap();
        assert!(shown.ends_with("x      1.00 s      2.00 s       never\n"), "{shown}");
    }
}
