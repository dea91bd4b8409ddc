//! [`Measured`]: the figures of a run, taken from its timeline and from what the workers wrote.

use super::{
    check::Evidence,
    timeline::{MarkKind, Timeline},
};
use ielections::Epoch;
use std::time::Duration;
use vvm_clock::Instant;

/// Where a moment lies, seen from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Offset {
    Before(Duration),
    After(Duration),
}

impl Offset {
    /// Where `moment` lies, seen from `origin`.
    pub(crate) fn of(moment: Instant, origin: Instant) -> Self {
        if moment < origin { Self::Before(moment.until(origin)) } else { Self::After(origin.until(moment)) }
    }

    /// In milliseconds, negative before.
    pub(crate) fn millis(self) -> f64 {
        match self {
            Self::Before(span) => -milliseconds(span),
            Self::After(span) => milliseconds(span),
        }
    }
}

/// For machines: milliseconds with as many digits as mean something.
pub(crate) fn milliseconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e3
}

/// What was measured, as far as it came to that.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) renewals: usize,
    /// From the kill until the next worker's first line.
    pub(crate) crash_failover: Option<Duration>,
    /// From SIGTERM until the next worker's first line.
    pub(crate) handover: Option<Duration>,
    /// From the deadline of the stopped host until its death.
    pub(crate) kill_after_deadline: Option<Offset>,
    /// From the death of the stopped host until the next worker's first line.
    pub(crate) next_after_kill: Option<Offset>,
    pub(crate) overlaps: usize,
    pub(crate) epochs: Vec<Epoch>,
}

impl Measured {
    /// Measures a run.
    pub(crate) fn of(timeline: &Timeline, evidence: &Evidence) -> Self {
        let until_next = |kind| {
            let mark = timeline.mark(kind)?;
            timeline.next_at_work(mark.at).map(|(_, began)| mark.at.until(began))
        };
        // Who hands the record back has not crashed: the next one did not have to wait until it expired.
        let crashed = timeline
            .mark(MarkKind::Crashed)
            .and_then(|mark| timeline.led_by(mark.lane, mark.at))
            .filter(|leadership| !leadership.released);
        let died = timeline.mark(MarkKind::HostDied).map(|mark| mark.at);
        let deadline = timeline.mark(MarkKind::Deadline).map(|mark| mark.at);
        let next = timeline
            .mark(MarkKind::HostStopped)
            .and_then(|mark| timeline.next_at_work(mark.at))
            .map(|(_, began)| began);
        Self {
            renewals: timeline.leaderships.first().map_or(0, |first| first.renewals.len()),
            crash_failover: crashed.and_then(|_| until_next(MarkKind::Crashed)),
            handover: until_next(MarkKind::AskedToStop),
            kill_after_deadline: died.zip(deadline).map(|(died, deadline)| Offset::of(died, deadline)),
            next_after_kill: next.zip(died).map(|(next, died)| Offset::of(next, died)),
            overlaps: evidence.overlaps().len(),
            epochs: evidence.epochs(),
        }
    }
}

/// For people, a span that was chosen: as short as it can be said.
pub(crate) fn chosen(span: Duration) -> String {
    format!("{} s", span.as_secs_f64())
}

/// For people, a span that was measured.
pub(crate) fn seconds(span: Duration) -> String {
    if span < Duration::from_millis(100) {
        return format!("{} ms", span.as_millis());
    }
    format!("{:.2} s", span.as_secs_f64())
}
