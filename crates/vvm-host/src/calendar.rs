//! Moments and spans as people read them. For people only: nothing is ever decided by a wall clock.

use std::{fmt, time::Duration};

/// A moment on some wall clock, since 1970, as `2026-11-21T21:46:00Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(pub(crate) Duration);

impl fmt::Display for Moment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY: u64 = 24 * 3600;
        let seconds = self.0.as_secs();
        let (year, month, day) = date(seconds / DAY);
        let second = seconds % DAY;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// The date so many days after 1970-01-01, in the calendar of today (Hinnant, "chrono-compatible low-level date
/// algorithms": years that begin in March, in eras of 400).
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// A span, as exactly as people care: `0.4s`, `1m05s`, `2h05m`, `3d04h`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0..60 => write!(out, "{}.{}s", seconds, self.0.subsec_millis() / 100),
            60..3_600 => write!(out, "{}m{:02}s", seconds / 60, seconds % 60),
            3_600..86_400 => write!(out, "{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
            _ => write!(out, "{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        let moment = |seconds| Moment(Duration::from_secs(seconds)).to_string();
        assert_eq!(moment(0), "1970-01-01T00:00:00Z");
        assert_eq!(moment(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(moment(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(moment(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(moment(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn spans_are_as_exact_as_people_care() {
        let span = |millis| Span(Duration::from_millis(millis)).to_string();
        assert_eq!(span(450), "0.4s");
        assert_eq!(span(65_000), "1m05s");
        assert_eq!(span(7_500_000), "2h05m");
        assert_eq!(span(273_600_000), "3d04h");
    }
}
