//! [`Timeline`]: who led when, as a picture ([`svg`]). Only for people; no decision depends on it.

mod svg;

use jiff::Timestamp;
use std::{ops::Range, time::Duration};

/// What happened in a span of time. Times count from zero, or from 1970 with [`Axis::Utc`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeline {
    /// What is shown, in a line.
    pub title: String,
    /// What the times mean, in a line below.
    pub note: String,
    /// The kind of the axis.
    pub axis: Axis,
    /// What is drawn. What lies outside is cut off.
    pub span: Range<Duration>,
    /// Spans of time, in the order in which their holders have rows.
    pub bars: Vec<Bar>,
    /// Moments.
    pub marks: Vec<Mark>,
}

/// What the ticks of the axis show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Axis {
    /// Seconds.
    Seconds,
    /// Times of day, and dates if the span has several days.
    Utc,
}

/// A span of time of one holder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bar {
    /// The number of the slot.
    pub slot: u32,
    /// The name of the process.
    pub holder: String,
    /// What it does meanwhile.
    pub kind: BarKind,
    /// The time.
    pub span: Range<Duration>,
}

/// What a holder does for a span of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarKind {
    /// Its process runs.
    Runs,
    /// It leads with this epoch.
    Leads(u64),
    /// It has not renewed its record since the begin of this bar, which is a TTL long at most.
    Ttl,
    /// Its kill deadline has passed, and none leads yet.
    Dead,
}

/// A moment of one holder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The number of the slot.
    pub slot: u32,
    /// The name of the process.
    pub holder: String,
    /// What happened.
    pub kind: MarkKind,
    /// When.
    pub at: Duration,
    /// What happened, in a few words.
    pub text: String,
}

/// What happened to a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkKind {
    /// It was killed.
    Kill,
    /// It hangs.
    Hang,
    /// It lost its leadership, or its end is unknown.
    Loss,
    /// It stops in order.
    Stop,
    /// It leads after another one.
    HandOver,
}

impl Timeline {
    fn rows(&self) -> Vec<(u32, &str)> {
        let of_bars = self.bars.iter().map(|bar| (bar.slot, &*bar.holder));
        let all = of_bars.chain(self.marks.iter().map(|mark| (mark.slot, &*mark.holder)));
        let mut rows = Vec::new();
        all.for_each(|row| {
            if !rows.contains(&row) {
                rows.push(row)
            }
        });
        rows.sort_by_key(|(slot, _)| *slot);
        rows
    }

    fn leaderships(&self, slot: u32) -> Vec<&Bar> {
        let leads = |bar: &&Bar| bar.slot == slot && matches!(bar.kind, BarKind::Leads(_));
        let mut leaderships = self.bars.iter().filter(leads).collect::<Vec<_>>();
        leaderships.sort_by_key(|bar| bar.span.start);
        leaderships
    }

    fn ticks(&self) -> Vec<(Duration, String)> {
        const STEPS: [u64; 24] = [
            100,
            200,
            500,
            1_000,
            2_000,
            5_000,
            10_000,
            30_000,
            60_000,
            120_000,
            300_000,
            600_000,
            1_800_000,
            3_600_000,
            7_200_000,
            21_600_000,
            43_200_000,
            86_400_000,
            172_800_000,
            604_800_000,
            2_592_000_000,
            7_776_000_000,
            31_536_000_000,
            157_680_000_000,
        ];
        let Range { start, end } = self.span;
        let long = end.saturating_sub(start).as_millis();
        let Some(step) = STEPS.into_iter().map(u128::from).find(|step| long / step <= 12) else {
            return Vec::new();
        };
        let text = |millis: u128| {
            let at = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
            let text = match self.axis {
                Axis::Seconds => format!("{} s", at.as_secs_f64()),
                Axis::Utc => {
                    let utc = Timestamp::default().checked_add(at).unwrap_or(Timestamp::MAX);
                    let form = match (step, long) {
                        (86_400_000.., _) => "%b %d",
                        (_, 86_400_000..) => "%b %d %H:%M",
                        (60_000.., _) => "%H:%M",
                        _ => "%H:%M:%S",
                    };
                    utc.strftime(form).to_string()
                }
            };
            (at, text)
        };
        let first = start.as_millis().div_ceil(step);
        (first..=end.as_millis() / step).map(|count| text(count * step)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_whole_and_few_at_each_length() {
        let ticks = |from: u64, until: u64| {
            let span = Duration::from_secs(from)..Duration::from_secs(until);
            let (bars, marks) = (Vec::new(), Vec::new());
            Timeline { title: "t".into(), note: "n".into(), axis: Axis::Utc, span, bars, marks }.ticks()
        };
        let texts = |from, until| ticks(from, until).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(
            texts(59, 62),
            ["00:00:59", "00:00:59", "00:01:00", "00:01:00", "00:01:01", "00:01:01", "00:01:02"]
        );
        assert_eq!(
            texts(86_000, 97_200),
            ["00:00", "00:30", "01:00", "01:30", "02:00", "02:30", "03:00"].map(str::to_owned)
        );
        for long in (0..30).map(|power| 1 << power) {
            let count = ticks(0, long).len();
            assert!((4..=13).contains(&count), "{long} s: {count}");
        }
    }
}
