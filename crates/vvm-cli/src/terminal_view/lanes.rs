//! Spans of time as bars, from left to right, on a scale that all lanes of a picture share.

use std::time::Duration;
use vvm_clock::Instant;

/// How many columns apart two moments of an axis are, at least.
const APART: usize = 10;

/// Which moment stands in which column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) began: Instant,
    pub(crate) length: Duration,
    /// Columns to the left of the beginning.
    pub(crate) margin: usize,
    /// Columns of the whole length.
    pub(crate) columns: usize,
}

/// Columns with the same sign, from one moment to another, both included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    pub(crate) sign: char,
}

impl Scale {
    /// Returns the column of `moment`, which lies beyond the last one if the moment does.
    fn column(&self, moment: Instant) -> usize {
        let share = self.began.until(moment).as_secs_f64() / self.length.as_secs_f64();
        self.margin + (share * self.columns as f64) as usize
    }

    /// Returns a lane that begins with `name`, with bars that each lie over those before it.
    pub(crate) fn lane(&self, name: &str, bars: impl IntoIterator<Item = Bar>) -> String {
        let mut lane = name.chars().collect::<Vec<_>>();
        for Bar { from, to, sign } in bars {
            let columns = self.column(from)..self.column(to) + 1;
            lane.resize(lane.len().max(columns.end), ' ');
            lane[columns].fill(sign);
        }
        lane.into_iter().collect()
    }

    /// Returns texts, each below its moment. Without room, the later one moves to the right.
    pub(crate) fn captions(&self, mut captions: Vec<(Instant, String)>) -> String {
        captions.sort_by_key(|(at, _)| *at);
        let mut row = String::new();
        for (at, caption) in captions {
            let used = row.chars().count();
            let gap = self.column(at).saturating_sub(used).max(usize::from(used > 0));
            row = format!("{row}{:gap$}{caption}", "");
        }
        row
    }

    /// Returns a row of moments: multiples of `step`, or of twice as much and so on where that is too dense.
    pub(crate) fn axis(&self, mut step: Duration) -> String {
        while self.column(self.began.after(step)) < self.margin + APART && step < self.length {
            step *= 2;
        }
        let moments = (0..).map(|count| step * count).take_while(|moment| *moment < self.length);
        let label = |moment: Duration| (self.began.after(moment), format!("╵{} s", moment.as_secs_f64()));
        self.captions(moments.map(label).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: Instant = Instant::from_nanos(500_000_000_000);

    fn at(seconds: u64) -> Instant {
        BEGAN.after(Duration::from_secs(seconds))
    }

    /// A column for each second.
    fn scale() -> Scale {
        Scale { began: BEGAN, length: Duration::from_secs(30), margin: 2, columns: 30 }
    }

    #[test]
    fn later_bar_lies_over_earlier_one() {
        let bar = |from, to, sign| Bar { from: at(from), to: at(to), sign };
        assert_eq!(scale().lane("A", [bar(0, 5, '░'), bar(2, 3, '█')]), "A ░░██░░");
    }

    #[test]
    fn captions_without_room_move_to_the_right() {
        let captions = [(5, "second"), (3, "first"), (14, "third")];
        let captions = captions.map(|(second, text)| (at(second), text.to_owned()));
        assert_eq!(scale().captions(captions.into()), "     first second third");
    }

    #[test]
    fn moments_of_an_axis_are_ten_columns_apart_or_more() {
        let axis = |step| scale().axis(Duration::from_secs(step));
        assert_eq!(axis(10), "  ╵0 s      ╵10 s     ╵20 s");
        assert_eq!(axis(3), "  ╵0 s        ╵12 s       ╵24 s");
        assert_eq!(axis(60), "  ╵0 s");
    }
}
