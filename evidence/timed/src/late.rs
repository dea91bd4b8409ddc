//! The lateness of a machine within a span, and the verdict on a missed bound.

use std::{fmt, time::Duration};
use vvm_clock::Instant;

/// A time in which a probe was late: from when it was due until it was done.
pub(crate) type Span = (Instant, Instant);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lateness {
    /// How long at least one of them was late.
    pub(crate) together: Duration,
    pub(crate) each: Vec<(String, Duration)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Missed {
    what: String,
    bound: Duration,
    took: Duration,
    late: Lateness,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Held,
    Inconclusive(Missed),
    Failed(Missed),
}

/// Judges a bound. If it is missed by more than the machine was late, the program is at fault.
pub(crate) fn judge(what: &str, bound: Duration, took: Duration, late: Lateness) -> Verdict {
    let Some(by) = took.checked_sub(bound).filter(|by| !by.is_zero()) else { return Verdict::Held };
    let explains = late.together >= by;
    let missed = Missed { what: what.to_owned(), bound, took, late };
    if explains { Verdict::Inconclusive(missed) } else { Verdict::Failed(missed) }
}

impl Lateness {
    /// Adds up the lateness between `since` and `until`. A moment counts once, even if several probes were late.
    pub(crate) fn between(since: Instant, until: Instant, probes: Vec<(String, Vec<Span>)>) -> Self {
        let clip = |(from, to): Span| (from.max(since), to.min(until));
        let mut all = Vec::new();
        let mut each = Vec::new();
        for (name, spans) in probes {
            let spans = spans.into_iter().map(clip).filter(|(from, to)| from < to).collect::<Vec<_>>();
            each.push((name, spans.iter().map(|(from, to)| to.since(*from)).sum()));
            all.extend(spans);
        }
        all.sort_unstable();
        let (mut together, mut counted_until) = (Duration::ZERO, since);
        for (from, to) in all {
            together += to.since(from.max(counted_until));
            counted_until = counted_until.max(to);
        }
        Self { together, each }
    }
}

impl fmt::Display for Missed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, bound, took, late } = self;
        let by = took.saturating_sub(*bound);
        write!(
            out,
            "{what} took {}, {} over {}; the machine was late for {}",
            Millis(*took),
            Millis(by),
            Millis(*bound),
            Millis(late.together)
        )?;
        let each =
            late.each.iter().map(|(name, late)| format!("{name} {}", Millis(*late))).collect::<Vec<_>>();
        if each.is_empty() { Ok(()) } else { write!(out, " ({})", each.join(", ")) }
    }
}

pub(crate) struct Millis(pub(crate) Duration);

impl fmt::Display for Millis {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.1} ms", self.0.as_secs_f64() * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn span(from: u64, to: u64) -> Span {
        (Instant::ORIGIN.after(ms(from)), Instant::ORIGIN.after(ms(to)))
    }

    fn late(probes: &[&[Span]]) -> Lateness {
        let probes = probes.iter().enumerate().map(|(number, spans)| (number.to_string(), spans.to_vec()));
        let (since, until) = span(100, 1400);
        Lateness::between(since, until, probes.collect())
    }

    #[test]
    fn bound_missed_by_more_than_the_lateness_fails() {
        for spans in [&[][..], &[span(500, 799)], &[span(0, 100), span(1400, 9000)]] {
            let verdict = judge("x", ms(1000), ms(1300), late(&[spans]));
            assert!(matches!(verdict, Verdict::Failed(_)), "{verdict:?}");
        }
    }

    #[test]
    fn bound_missed_by_at_most_the_lateness_is_inconclusive() {
        for spans in [&[span(500, 800)][..], &[span(0, 250), span(1250, 9000)]] {
            let verdict = judge("x", ms(1000), ms(1300), late(&[spans]));
            assert!(matches!(verdict, Verdict::Inconclusive(_)), "{verdict:?}");
        }
    }

    #[test]
    fn kept_bound_holds_however_late_the_machine_is() {
        assert_eq!(judge("x", ms(1000), ms(1000), late(&[&[span(0, 9000)]])), Verdict::Held);
    }

    #[test]
    fn moment_with_two_late_probes_counts_once() {
        let found = late(&[&[span(200, 400), span(1000, 1100)], &[span(300, 500), span(350, 360)]]);
        assert_eq!(found.together, ms(400));
        assert_eq!(found.each, [("0".to_owned(), ms(300)), ("1".to_owned(), ms(210))]);
    }

    #[test]
    fn message_names_bound_and_lateness_of_each_probe() {
        let Verdict::Failed(missed) = judge("the end", ms(1000), ms(1300), late(&[&[span(200, 300)]])) else {
            panic!("it did not fail");
        };
        assert_eq!(
            missed.to_string(),
            "the end took 1300.0 ms, 300.0 ms over 1000.0 ms; the machine was late for 100.0 ms (0 100.0 ms)"
        );
    }
}
