//! Durations as people write them: `20s`, `500ms`, `1.5s`, `1h30m`. A number without a unit is refused.

use jiff::{Span, SpanRelativeTo};
use std::{str::FromStr, time::Duration};

/// A duration given on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GivenDuration(pub(crate) Duration);

/// A text that is not a duration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotADuration {
    /// A number alone.
    #[error("{0} of what? Write {0}s for seconds, {0}ms, {0}m or {0}h")]
    NoUnit(String),
    /// Anything else.
    #[error("write a duration like 20s, 500ms, 1.5s or 1h30m, at most 100 years (units: ms, s, m, h, d)")]
    Malformed,
}

/// 100 years, well within what an `Instant` can be moved by.
const MAX: Duration = Duration::from_hours(100 * 365 * 24);

impl FromStr for GivenDuration {
    type Err = NotADuration;

    fn from_str(text: &str) -> Result<Self, NotADuration> {
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(NotADuration::NoUnit(text.into()));
        }
        text.parse::<Span>()
            .and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()))
            .and_then(Duration::try_from)
            .ok()
            .filter(|duration| *duration <= MAX)
            .map(Self)
            .ok_or(NotADuration::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(text: &str) -> u128 {
        text.parse::<GivenDuration>().unwrap().0.as_millis()
    }

    #[test]
    fn a_duration_is_read_as_people_write_it() {
        assert_eq!(millis("20s"), 20_000);
        assert_eq!(millis("500ms"), 500);
        assert_eq!(millis("1m30s"), 90_000);
        assert_eq!(millis("1d2h3m4s5ms"), 93_784_005);
        assert_eq!(millis("1.5s"), 1_500);
        assert_eq!(millis("2m"), 120_000);
        assert_eq!(millis("1h30m"), 5_400_000);
        assert_eq!(millis("36500d"), 36_500 * 86_400_000);
        assert_eq!(millis("0"), 0);
    }

    #[test]
    fn a_number_without_a_unit_is_refused_with_the_hint() {
        let refusal = "20".parse::<GivenDuration>().unwrap_err();
        assert_eq!(refusal, NotADuration::NoUnit("20".into()));
        assert!(refusal.to_string().contains("Write 20s"), "{refusal}");
        assert_eq!("1.5".parse::<GivenDuration>(), Err(NotADuration::NoUnit("1.5".into())));
    }

    #[test]
    fn a_text_that_is_no_duration_is_refused() {
        let malformed = ["", "s", "-1s", "1s ago", "1s1s", "1s1m", "1m30", "s20", "1M", "1mo", "1y", "nan"];
        let long = ["99999999999999999999s", "18446744073709551615d", "36501d", "876000h1ms"];
        for text in malformed.into_iter().chain(long) {
            assert_eq!(text.parse::<GivenDuration>(), Err(NotADuration::Malformed), "{text:?}");
        }
    }
}
