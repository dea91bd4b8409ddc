//! [`Exposition`]: metrics as text, in the format OpenMetrics 1.0. A family at a time, its samples together.

use crate::situation::Buckets;
use std::fmt::{Display, Write as _};

/// A text of metrics in the making.
#[derive(Debug, Default)]
pub(crate) struct Exposition(String);

/// What a family measures. A counter's samples are called `…_total`, an info's `…_info`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Info,
    StateSet,
}

/// Labels of a sample, in the order to write them in.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition {
    /// What a server says that it is.
    pub(crate) const CONTENT_TYPE: &'static str =
        "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// Begins the family `name`, whose name ends in its unit if it has one.
    pub(crate) fn family(&mut self, name: &str, kind: Kind, unit: Option<&str>, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
            Kind::StateSet => "stateset",
        };
        self.line(format_args!("# TYPE {name} {kind}"));
        if let Some(unit) = unit {
            self.line(format_args!("# UNIT {name} {unit}"));
        }
        self.line(format_args!("# HELP {name} {}", escaped(help)));
    }

    /// A sample of the family that was begun last; `name` with the suffix that its kind asks for.
    pub(crate) fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        let labels = labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value)));
        let labels = labels.collect::<Vec<_>>().join(",");
        if labels.is_empty() {
            self.line(format_args!("{name} {value}"));
        } else {
            self.line(format_args!("{name}{{{labels}}} {value}"));
        }
    }

    /// The samples of a histogram of durations, in seconds.
    pub(crate) fn histogram(&mut self, name: &str, labels: Labels<'_>, buckets: &Buckets) {
        let bucket = format!("{name}_bucket");
        for (bound, count) in &buckets.cumulative {
            // Floats, in the shortest form that says whole ones too.
            let bound = format!("{:?}", bound.as_secs_f64());
            self.sample(&bucket, &[labels, &[("le", &bound)]].concat(), count);
        }
        self.sample(&bucket, &[labels, &[("le", "+Inf")]].concat(), buckets.count);
        self.sample(&format!("{name}_count"), labels, buckets.count);
        self.sample(&format!("{name}_sum"), labels, buckets.sum.as_secs_f64());
    }

    /// The whole text.
    pub(crate) fn finish(mut self) -> String {
        self.line(format_args!("# EOF"));
        self.0
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a text does not fail.
        let _ = writeln!(self.0, "{line}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_written_as_the_format_has_it() {
        let mut out = Exposition::default();
        out.family("a_seconds", Kind::Gauge, Some("seconds"), "How \"long\".");
        out.sample("a_seconds", &[("of", "C:\\x\n\"y\"")], 1.5);
        out.sample("a_seconds", &[], 2);
        let expected = "# TYPE a_seconds gauge\n# UNIT a_seconds seconds\n# HELP a_seconds How \\\"long\\\".\n\
                        a_seconds{of=\"C:\\\\x\\n\\\"y\\\"\"} 1.5\na_seconds 2\n# EOF\n";
        assert_eq!(out.finish(), expected);
    }
}
