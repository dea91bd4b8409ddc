//! How moments, spans, states and tables are shown to people. No decision depends on it.

use crate::announce::printable;
use jiff::Timestamp;
use serde::Serialize;
use std::{
    env, fmt,
    io::{self, IsTerminal as _, Write as _},
    iter,
    time::Duration,
};
use vvm_host::operate::InspectError;

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A moment on a wall clock, since 1970, as `2026-11-21T21:46:00Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(pub(crate) Duration);

/// A moment after the year 9999 is shown as the latest that can be shown. Only a damaged document has one.
impl fmt::Display for Moment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = Timestamp::default().checked_add(self.0).unwrap_or(Timestamp::MAX);
        write!(out, "{moment:.0}")
    }
}

/// A span in two units: `7ms`, `0.4s`, `1m05s`, `2h05m`, `3d04h`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct HumanDuration(pub(crate) Duration);

impl fmt::Display for HumanDuration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0 if self.0.as_millis() < 100 => write!(out, "{}ms", self.0.as_millis()),
            0..60 => write!(out, "{}.{}s", seconds, self.0.subsec_millis() / 100),
            60..3_600 => write!(out, "{}m{:02}s", seconds / 60, seconds % 60),
            3_600..86_400 => write!(out, "{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
            _ => write!(out, "{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    Plain,
    Good,
    Bad,
    Orange,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Palette {
    Colours,
    Plain,
}

impl Palette {
    /// Colours if standard output is a terminal that has them. `NO_COLOR` turns them off (no-color.org).
    pub(crate) fn of_standard_output() -> Self {
        let dumb = env::var_os("TERM").is_none_or(|name| name == "dumb");
        let allowed = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        if allowed && !dumb && io::stdout().is_terminal() { Self::Colours } else { Self::Plain }
    }

    /// Returns `text` with the codes for its style, in one of the 256 colours that terminals have.
    pub(crate) fn paint(self, text: &str, style: Style) -> String {
        let codes = match style {
            _ if self == Self::Plain => return text.to_owned(),
            Style::Plain => return text.to_owned(),
            Style::Good => "38;5;35",
            Style::Bad => "1;38;5;160",
            Style::Orange => "38;5;172",
        };
        format!("\x1b[{codes}m{text}\x1b[0m")
    }
}

pub(crate) type Column = (&'static str, isize);

/// Prints a line for each of `rows`, which `cells` turns into texts, or all of them as one array of JSON. Texts are
/// escaped, and one that is missing is shown as a dash.
pub(crate) fn print_rows<R: Serialize, const N: usize>(
    as_json: bool,
    columns: [Column; N],
    rows: &[R],
    cells: impl Fn(&R) -> (Style, [Option<String>; N]),
) -> Result<(), InspectError> {
    let write = || {
        let mut out = io::stdout().lock();
        if as_json {
            serde_json::to_writer_pretty(&mut out, rows)?;
            return writeln!(out);
        }
        let palette = Palette::of_standard_output();
        let heads = (Style::Plain, columns.map(|(head, _)| Some(head.to_owned())));
        for (style, cells) in iter::once(heads).chain(rows.iter().map(cells)) {
            let cells = iter::zip(cells, columns).map(|(cell, (_, width))| {
                let (text, width, at_right) =
                    (cell.map(|cell| printable(&cell)), width.unsigned_abs(), width < 0);
                let text = text.unwrap_or_else(|| "-".into());
                if at_right { format!("{text:>width$}") } else { format!("{text:width$}") }
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            writeln!(out, "{}", palette.paint(line.trim_end(), style))?;
        }
        Ok(())
    };
    write().map_err(InspectError::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moment_is_shown_as_date_and_time_in_utc() {
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (59_999, "1970-01-01T00:00:59Z"),
            (951_782_399_000, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
            (u64::MAX, "9999-12-30T22:00:00Z"),
        ] {
            assert_eq!(Moment(Duration::from_millis(millis)).to_string(), expected);
        }
    }

    #[test]
    fn span_is_shown_in_two_units() {
        let span = |millis| HumanDuration(Duration::from_millis(millis)).to_string();
        let spans = [7, 450, 65_000, 7_500_000, 273_600_000].map(span);
        assert_eq!(spans, ["7ms", "0.4s", "1m05s", "2h05m", "3d04h"]);
    }

    #[test]
    fn colour_ends_with_its_text_and_can_be_turned_off() {
        assert_eq!(Palette::Colours.paint("a", Style::Bad), "\x1b[1;38;5;160ma\x1b[0m");
        assert_eq!(Palette::Plain.paint("a", Style::Bad), "a");
        assert_eq!(Palette::Colours.paint("a", Style::Plain), "a");
    }
}
