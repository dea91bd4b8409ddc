//! Spans of time as bars, from left to right, on a scale that all lanes of a picture share.

use super::canvas::{Row, Style};
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

/// Columns that look the same, from one moment to another, both included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    pub(crate) sign: char,
    pub(crate) style: Style,
}

impl Scale {
    /// Returns the column of `moment`, which lies beyond the last one if the moment does.
    fn column(&self, moment: Instant) -> usize {
        let share = self.began.until(moment).as_secs_f64() / self.length.as_secs_f64();
        self.margin + (share * self.columns as f64) as usize
    }

    /// Draws bars on the row of a lane, each over those before it.
    pub(crate) fn bars(&self, row: &mut Row, bars: impl IntoIterator<Item = Bar>) {
        for Bar { from, to, sign, style } in bars {
            row.fill(self.column(from)..self.column(to) + 1, sign, style);
        }
    }

    /// Returns a row of captions, each below its moment. Without room, the later one moves to the right.
    pub(crate) fn captions(&self, mut captions: Vec<(Instant, String, Style)>) -> Row {
        captions.sort_by_key(|(at, ..)| *at);
        let mut row = Row::default();
        for (at, caption, style) in captions {
            let free = if row.width() == 0 { 0 } else { row.width() + 1 };
            row.put(self.column(at).max(free), &caption, style);
        }
        row
    }

    /// Returns a row of moments: multiples of `step`, or of twice as much and so on where that is too dense.
    pub(crate) fn axis(&self, mut step: Duration) -> Row {
        while self.column(self.began.after(step)) < self.margin + APART && step < self.length {
            step *= 2;
        }
        let (mut row, mut moment) = (Row::default(), Duration::ZERO);
        while moment < self.length {
            let label = format!("╵{} s", moment.as_secs_f64());
            row.put(self.column(self.began.after(moment)), &label, Style::Dim);
            moment += step;
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::{super::canvas::Palette, *};

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
        let bar = |from, to, sign| Bar { from: at(from), to: at(to), sign, style: Style::Plain };
        let mut row = Row::of("A", Style::Plain);
        scale().bars(&mut row, [bar(0, 5, '░'), bar(2, 3, '█')]);
        assert_eq!(row.to_text(Palette::Plain), "A ░░██░░");
    }

    #[test]
    fn captions_without_room_move_to_the_right() {
        let captions = [(5, "second"), (3, "first"), (14, "third")];
        let captions = captions.map(|(second, text)| (at(second), text.to_owned(), Style::Plain));
        let row = scale().captions(captions.into());
        assert_eq!(row.to_text(Palette::Plain), "     first second third");
    }

    #[test]
    fn moments_of_an_axis_are_ten_columns_apart_or_more() {
        let axis = |step| scale().axis(Duration::from_secs(step)).to_text(Palette::Plain);
        assert_eq!(axis(10), "  ╵0 s      ╵10 s     ╵20 s");
        assert_eq!(axis(3), "  ╵0 s        ╵12 s       ╵24 s");
        assert_eq!(axis(60), "  ╵0 s");
    }
}
